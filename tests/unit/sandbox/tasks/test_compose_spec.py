"""If these fail, a key of the Compose specification is dropped in silence, or refused without saying which and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel

from sandbox.tasks.container_files.compose import REMARKS
from sandbox.tasks.container_files.compose_schema import ComposeAgentService, ComposeFile, ComposeSideService
from sandbox.tasks.container_files.compose_values import ComposeSection
from sandbox.tasks.formats.folders import load_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from tests.support.tasks.compose_keys import spec_keys

FILES = {
    "task.toml": '[environment]\nnetwork_mode = "public"\n',
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM debian AS first\nRUN true\nFROM debian\n",
    "environment/Other": "FROM debian\nRUN false\n",
    "environment/v.env": "A=1\n",
    "environment/folder/Dockerfile": "FROM debian\nRUN echo\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
}


class Sample(NamedTuple):
    """What a key says, and what becomes of it in the agent's service and in another one."""

    outcomes: str
    """``F`` followed, ``I`` ignored, ``M`` remarked on, ``R`` refused: for the agent's service, then the other one."""
    given: str
    """Keys of a service."""
    otherwise: str = ""
    """The same without the key."""


BUILD = "build: {context: .}"
SAMPLES = {
    "annotations": Sample("II", "annotations: {a: b}"),
    "attach": Sample("II", "attach: false"),
    "blkio_config": Sample("MM", "blkio_config: {weight: 300}"),
    "build": Sample("FF", "build: folder", BUILD),
    "build.additional_contexts": Sample("RR", "build: {context: ., additional_contexts: {a: ..}}"),
    "build.args": Sample("FF", "build: {context: ., args: [A=b]}", BUILD),
    "build.cache_from": Sample("II", "build: {context: ., cache_from: [a]}", BUILD),
    "build.cache_to": Sample("II", "build: {context: ., cache_to: [a]}", BUILD),
    "build.context": Sample("FF", "build: {context: folder}", BUILD),
    "build.dockerfile": Sample("FF", "build: {context: ., dockerfile: Other}", BUILD),
    "build.dockerfile_inline": Sample("FF", 'build: {context: ., dockerfile_inline: "FROM a"}', BUILD),
    "build.entitlements": Sample("RR", "build: {context: ., entitlements: [network.host]}"),
    "build.extra_hosts": Sample("RR", "build: {context: ., extra_hosts: ['a:1.2.3.4']}"),
    "build.isolation": Sample("RR", "build: {context: ., isolation: hyperv}"),
    "build.labels": Sample("II", "build: {context: ., labels: {a: b}}", BUILD),
    "build.network": Sample("FI", "build: {context: ., network: none}", BUILD),
    "build.no_cache": Sample("II", "build: {context: ., no_cache: true}", BUILD),
    "build.platforms": Sample("MM", "build: {context: ., platforms: [linux/arm64]}", BUILD),
    "build.privileged": Sample("RR", "build: {context: ., privileged: true}"),
    "build.provenance": Sample("II", "build: {context: ., provenance: true}", BUILD),
    "build.pull": Sample("II", "build: {context: ., pull: true}", BUILD),
    "build.sbom": Sample("II", "build: {context: ., sbom: true}", BUILD),
    "build.secrets": Sample("RR", "build: {context: ., secrets: [a]}"),
    "build.shm_size": Sample("MM", "build: {context: ., shm_size: 1g}", BUILD),
    "build.ssh": Sample("RR", "build: {context: ., ssh: [default]}"),
    "build.tags": Sample("II", "build: {context: ., tags: [a]}", BUILD),
    "build.target": Sample("FF", "build: {context: ., target: first}", BUILD),
    "build.ulimits": Sample("MM", "build: {context: ., ulimits: {nofile: 2000}}", BUILD),
    "cap_add": Sample("RF", "cap_add: [IPC_LOCK]"),
    "cap_drop": Sample("RF", "cap_drop: [SETUID]"),
    "cgroup": Sample("RR", "cgroup: host"),
    "cgroup_parent": Sample("RR", "cgroup_parent: a"),
    "command": Sample("FF", "command: serve"),
    "configs": Sample("RR", "configs: [a]"),
    "container_name": Sample("FF", "container_name: other"),
    "cpu_count": Sample("MM", "cpu_count: 2"),
    "cpu_percent": Sample("MM", "cpu_percent: 50"),
    "cpu_period": Sample("RR", "cpu_period: 20ms"),
    "cpu_quota": Sample("RR", "cpu_quota: 10000"),
    "cpu_rt_period": Sample("RR", "cpu_rt_period: 1000"),
    "cpu_rt_runtime": Sample("RR", "cpu_rt_runtime: 1000"),
    "cpu_shares": Sample("MM", "cpu_shares: 100"),
    "cpus": Sample("FF", "cpus: 0.5"),
    "cpuset": Sample("RR", "cpuset: '0'"),
    "credential_spec": Sample("RR", "credential_spec: {file: a}"),
    "depends_on": Sample("IF", "depends_on: [web]"),
    "depends_on.condition": Sample(
        "FF", "depends_on: {web: {condition: service_completed_successfully}}", "depends_on: [web]"
    ),
    "depends_on.required": Sample("II", "depends_on: {absent: {required: false}}"),
    "depends_on.restart": Sample("II", "depends_on: {web: {restart: true}}", "depends_on: [web]"),
    "deploy": Sample("FF", "deploy: {resources: {limits: {cpus: '2'}}}"),
    "deploy.endpoint_mode": Sample("II", "deploy: {endpoint_mode: vip}"),
    "deploy.labels": Sample("II", "deploy: {labels: {a: b}}"),
    "deploy.mode": Sample("II", "deploy: {mode: replicated}"),
    "deploy.placement": Sample("II", "deploy: {placement: {constraints: [a]}}"),
    "deploy.replicas": Sample("RR", "deploy: {replicas: 2}"),
    "deploy.resources": Sample("FF", "deploy: {resources: {limits: {memory: 1g}}}"),
    "deploy.resources.limits": Sample("FF", "deploy: {resources: {limits: {memory: 1g}}}"),
    "deploy.resources.limits.cpus": Sample("FF", "deploy: {resources: {limits: {cpus: '2'}}}"),
    "deploy.resources.limits.memory": Sample("FF", "deploy: {resources: {limits: {memory: 1g}}}"),
    "deploy.resources.limits.pids": Sample("FF", "deploy: {resources: {limits: {pids: 99}}}"),
    "deploy.resources.reservations": Sample("MM", "deploy: {resources: {reservations: {cpus: '1'}}}"),
    "deploy.resources.reservations.cpus": Sample("MM", "deploy: {resources: {reservations: {cpus: '1'}}}"),
    "deploy.resources.reservations.devices": Sample(
        "RR", "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}"
    ),
    "deploy.resources.reservations.generic_resources": Sample(
        "RR", "deploy: {resources: {reservations: {generic_resources: [{discrete_resource_spec: {value: 1}}]}}}"
    ),
    "deploy.resources.reservations.memory": Sample("MM", "deploy: {resources: {reservations: {memory: 1g}}}"),
    "deploy.restart_policy": Sample("IF", "deploy: {restart_policy: {condition: any}}"),
    "deploy.restart_policy.condition": Sample("IF", "deploy: {restart_policy: {condition: on-failure}}"),
    "deploy.restart_policy.delay": Sample(
        "II",
        "deploy: {restart_policy: {condition: on-failure, delay: 5s}}",
        "deploy: {restart_policy: {condition: on-failure}}",
    ),
    "deploy.restart_policy.max_attempts": Sample(
        "IF",
        "deploy: {restart_policy: {condition: on-failure, max_attempts: 3}}",
        "deploy: {restart_policy: {condition: on-failure}}",
    ),
    "deploy.restart_policy.window": Sample(
        "II",
        "deploy: {restart_policy: {condition: on-failure, window: 5s}}",
        "deploy: {restart_policy: {condition: on-failure}}",
    ),
    "deploy.rollback_config": Sample("II", "deploy: {rollback_config: {parallelism: 1}}"),
    "deploy.update_config": Sample("II", "deploy: {update_config: {parallelism: 1}}"),
    "develop": Sample("II", "develop: {watch: [{path: ., action: rebuild}]}"),
    "device_cgroup_rules": Sample("RR", "device_cgroup_rules: ['c 1:3 mr']"),
    "devices": Sample("RR", "devices: ['/dev/kvm:/dev/kvm']"),
    "dns": Sample("RR", "dns: 1.1.1.1"),
    "dns_opt": Sample("RR", "dns_opt: [use-vc]"),
    "dns_search": Sample("RR", "dns_search: a.example"),
    "domainname": Sample("RR", "domainname: a.example"),
    "entrypoint": Sample("FF", "entrypoint: /entry"),
    "env_file": Sample("FF", "env_file: v.env"),
    "env_file.format": Sample("RR", "env_file: [{path: v.env, format: raw}]"),
    "env_file.path": Sample("FF", "env_file: [{path: v.env}]"),
    "env_file.required": Sample("II", "env_file: [{path: absent.env, required: false}]"),
    "environment": Sample("FF", "environment: {A: b}"),
    "expose": Sample("II", "expose: [80]"),
    "extends": Sample("RR", "extends: {service: web}"),
    "external_links": Sample("RR", "external_links: [a]"),
    "extra_hosts": Sample("RR", "extra_hosts: ['a:1.2.3.4']"),
    "gpus": Sample("RR", "gpus: all"),
    "group_add": Sample("RR", "group_add: [mail]"),
    "healthcheck": Sample("FF", "healthcheck: {test: a}"),
    "healthcheck.disable": Sample("FF", "healthcheck: {test: a, disable: true}", "healthcheck: {test: a}"),
    "healthcheck.interval": Sample("FI", "healthcheck: {test: a, interval: 7s}", "healthcheck: {test: a}"),
    "healthcheck.retries": Sample("FI", "healthcheck: {test: a, retries: 7}", "healthcheck: {test: a}"),
    "healthcheck.start_interval": Sample("FI", "healthcheck: {test: a, start_interval: 2s}", "healthcheck: {test: a}"),
    "healthcheck.start_period": Sample("FI", "healthcheck: {test: a, start_period: 7s}", "healthcheck: {test: a}"),
    "healthcheck.test": Sample("FF", "healthcheck: {test: [CMD, a]}"),
    "healthcheck.timeout": Sample("FI", "healthcheck: {test: a, timeout: 7s}", "healthcheck: {test: a}"),
    "hostname": Sample("FF", "hostname: box"),
    "image": Sample("IF", "image: 'other:1'"),
    "init": Sample("II", "init: true"),
    "ipc": Sample("RR", "ipc: host"),
    "isolation": Sample("RR", "isolation: hyperv"),
    "label_file": Sample("II", "label_file: v.env"),
    "labels": Sample("II", "labels: [a=b]"),
    "links": Sample("FF", "links: ['web:site']"),
    "logging": Sample("II", "logging: {driver: none}"),
    "mac_address": Sample("RR", "mac_address: '02:42:ac:11:65:43'"),
    "mem_limit": Sample("FF", "mem_limit: 99m"),
    "mem_reservation": Sample("MM", "mem_reservation: 99m"),
    "mem_swappiness": Sample("MM", "mem_swappiness: 60"),
    "memswap_limit": Sample("MM", "memswap_limit: 1g"),
    "models": Sample("RR", "models: [a]"),
    "network_mode": Sample("RR", "network_mode: none"),
    "networks": Sample("II", "networks: [default]"),
    "networks.aliases": Sample("FF", "networks: {default: {aliases: [other]}}"),
    "networks.driver_opts": Sample("RR", "networks: {default: {driver_opts: {a: b}}}"),
    "networks.gw_priority": Sample("II", "networks: {default: {gw_priority: 1}}"),
    "networks.interface_name": Sample("RR", "networks: {default: {interface_name: eth7}}"),
    "networks.ipv4_address": Sample("RR", "networks: {default: {ipv4_address: 172.16.238.10}}"),
    "networks.ipv6_address": Sample("RR", "networks: {default: {ipv6_address: '2001:3984:3989::10'}}"),
    "networks.link_local_ips": Sample("RR", "networks: {default: {link_local_ips: [169.254.8.8]}}"),
    "networks.mac_address": Sample("RR", "networks: {default: {mac_address: '02:42:ac:11:65:43'}}"),
    "networks.priority": Sample("II", "networks: {default: {priority: 1}}"),
    "oom_kill_disable": Sample("MM", "oom_kill_disable: true"),
    "oom_score_adj": Sample("MM", "oom_score_adj: 500"),
    "pid": Sample("RR", "pid: host"),
    "pids_limit": Sample("FF", "pids_limit: 99"),
    "platform": Sample("MM", "platform: linux/amd64"),
    "ports": Sample("MM", "ports: ['80:80']"),
    "post_start": Sample("RR", "post_start: [{command: a}]"),
    "pre_stop": Sample("II", "pre_stop: [{command: a}]"),
    "privileged": Sample("RR", "privileged: true"),
    "profiles": Sample("IM", "profiles: [debug]"),
    "provider": Sample("RR", "provider: {type: a}"),
    "pull_policy": Sample("II", "pull_policy: always"),
    "pull_refresh_after": Sample("II", "pull_refresh_after: 1d"),
    "read_only": Sample("RF", "read_only: true"),
    "restart": Sample("IF", "restart: always"),
    "runtime": Sample("RR", "runtime: kata"),
    "scale": Sample("RR", "scale: 0"),
    "secrets": Sample("RR", "secrets: [a]"),
    "security_opt": Sample("RR", "security_opt: ['seccomp:unconfined']"),
    "shm_size": Sample("FF", "shm_size: 99m"),
    "stdin_open": Sample("IF", "stdin_open: true"),
    "stop_grace_period": Sample("II", "stop_grace_period: 1s"),
    "stop_signal": Sample("II", "stop_signal: SIGINT"),
    "storage_opt": Sample("RR", "storage_opt: {size: 1G}"),
    "sysctls": Sample("RR", "sysctls: {net.core.somaxconn: 1024}"),
    "tmpfs": Sample("FF", "tmpfs: /a"),
    "tty": Sample("IF", "tty: true"),
    "ulimits": Sample("FF", "ulimits: {nofile: 2000}"),
    "ulimits.hard": Sample("FF", "ulimits: {nofile: {soft: 1000, hard: 3000}}", "ulimits: {nofile: 1000}"),
    "ulimits.soft": Sample("FF", "ulimits: {nofile: {soft: 1000, hard: 3000}}", "ulimits: {nofile: 3000}"),
    "use_api_socket": Sample("RR", "use_api_socket: true"),
    "user": Sample("FF", "user: '1000'"),
    "userns_mode": Sample("RR", "userns_mode: host"),
    "uts": Sample("RR", "uts: host"),
    "volumes": Sample("FF", "volumes: ['./folder:/a']"),
    "volumes.bind": Sample(
        "II",
        "volumes: [{type: bind, source: ./folder, target: /a, bind: {propagation: shared}}]",
        "volumes: ['./folder:/a']",
    ),
    "volumes.consistency": Sample(
        "II",
        "volumes: [{type: bind, source: ./folder, target: /a, consistency: cached}]",
        "volumes: ['./folder:/a']",
    ),
    "volumes.image": Sample("RR", "volumes: [{type: volume, target: /a, image: {subpath: a}}]"),
    "volumes.read_only": Sample("FF", "volumes: ['kept:/a:ro']", "volumes: ['kept:/a']"),
    "volumes.source": Sample("FF", "volumes: ['kept:/a']", "volumes: [/a]"),
    "volumes.target": Sample("FF", "volumes: ['kept:/b']", "volumes: ['kept:/a']"),
    "volumes.tmpfs": Sample("FF", "volumes: [{type: tmpfs, target: /a, tmpfs: {size: 9m}}]", "tmpfs: /a"),
    "volumes.tmpfs.mode": Sample("FF", "volumes: [{type: tmpfs, target: /a, tmpfs: {mode: 0o1777}}]", "tmpfs: /a"),
    "volumes.tmpfs.size": Sample("FF", "volumes: [{type: tmpfs, target: /a, tmpfs: {size: 9m}}]", "tmpfs: /a"),
    "volumes.type": Sample("FF", "volumes: [{type: tmpfs, target: /a}]"),
    "volumes.volume": Sample("RR", "volumes: [{type: volume, source: a, target: /a, volume: {nocopy: true}}]"),
    "volumes.volume.labels": Sample(
        "II", "volumes: [{type: volume, source: a, target: /a, volume: {labels: {a: b}}}]", "volumes: ['a:/a']"
    ),
    "volumes.volume.nocopy": Sample("RR", "volumes: [{type: volume, source: a, target: /a, volume: {nocopy: true}}]"),
    "volumes.volume.subpath": Sample("RR", "volumes: [{type: volume, source: a, target: /a, volume: {subpath: b}}]"),
    "volumes_from": Sample("RR", "volumes_from: [web]"),
    "working_dir": Sample("FF", "working_dir: /srv"),
}  # fmt: skip
FILE_SAMPLES = {
    "configs": ("I", "configs: {a: {file: ./v.env}}"),
    "include": ("R", "include: [other.yaml]"),
    "models": ("R", "models: {a: {model: b}}"),
    "name": ("I", "name: a"),
    "networks.attachable": ("I", "networks: {default: {attachable: true}}"),
    "networks.driver": ("R", "networks: {default: {driver: macvlan}}"),
    "networks.driver_opts": ("R", "networks: {default: {driver_opts: {a: b}}}"),
    "networks.enable_ipv4": ("I", "networks: {default: {enable_ipv4: true}}"),
    "networks.enable_ipv6": ("R", "networks: {default: {enable_ipv6: true}}"),
    "networks.external": ("R", "networks: {default: {external: true}}"),
    "networks.internal": ("F", "networks: {default: {internal: true}}"),
    "networks.ipam": ("R", "networks: {default: {ipam: {config: [{subnet: 172.28.0.0/16}]}}}"),
    "networks.labels": ("I", "networks: {default: {labels: {a: b}}}"),
    "networks.name": ("I", "networks: {default: {name: a}}"),
    "secrets": ("I", "secrets: {a: {file: ./v.env}}"),
    "version": ("I", "version: '3.8'"),
    "volumes.driver": ("R", "volumes: {a: {driver: nfs}}"),
    "volumes.driver_opts": ("R", "volumes: {a: {driver_opts: {type: nfs}}}"),
    "volumes.external": ("R", "volumes: {a: {external: true}}"),
    "volumes.labels": ("I", "volumes: {a: {labels: {a: b}}}"),
    "volumes.name": ("I", "volumes: {a: {name: b}}"),
}
UNREAD = {"services.volumes.bind", "services.volumes.image"}
"""Sections without effect, or refused as a whole."""
SPEC = {each for each in spec_keys() if each.rpartition(".")[0] not in UNREAD}


def sections(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, ComposeSection):
        yield kind
    for each in get_args(kind):
        yield from sections(each)


def declared(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{path}{name}"
        for inner in sections(field.annotation):
            yield from declared(inner, f"{path}{name}.")


def test_every_key_of_the_specification_is_declared_and_no_other() -> None:
    for kind in (ComposeAgentService, ComposeSideService):
        assert {*declared(ComposeFile), *declared(kind, "services.")} == SPEC


def test_every_key_of_the_specification_has_a_sample() -> None:
    sampled = {f"services.{each}" for each in SAMPLES} | FILE_SAMPLES.keys()
    assert sampled == SPEC - {"services", "networks", "volumes"}


def load(folder: Path, main: str, db: str, of_file: str = "") -> LoadedTask:
    image = "" if "build:" in db or "image:" in db else "image: 'db:1', "
    web = "web: {image: 'web:1', volumes: ['kept:/kept']}"
    if "volumes: {" in of_file:
        of_file = of_file.replace("volumes: {", "volumes: {kept: , ")
    else:
        of_file += "\nvolumes: {kept: , a: }"
    files = FILES | {
        "environment/docker-compose.yaml": (
            f"services:\n  main: {{{main.rstrip()}}}\n  db: {{{image}{db}}}\n  {web}\n{of_file}\n"
        )
    }
    for path, text in files.items():
        (folder / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "a" / path).write_text(text)
    return load_task_folder(HARBOR, folder / "a")


def outcome(given: LoadedTask, otherwise: LoadedTask, named: str) -> str:
    """Return what became of a key, which any remark or problem must name, with a reason."""
    said = [*map(str, given.problems), *given.remarks]
    assert all(named in each and len(each) > len(named) + 20 for each in said), said
    assert len(said) <= 1, said
    if said:
        return "R" if given.problems else "M"
    return "I" if without_file(given) == without_file(otherwise) else "F"


def without_file(loaded: LoadedTask) -> Task:
    """Return the task without the compose file that is in its builds' contexts."""

    def plain(build: ImageBuild | None) -> ImageBuild | None:
        return build and replace(build, files={**build.files, "docker-compose.yaml": b""})

    task = loaded.require_task()
    services = tuple(replace(each, build=plain(each.build)) for each in task.services)
    return replace(task, build=plain(task.build), services=services)


@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_of_a_service_is_followed_ignored_remarked_on_or_refused(tmp_path: Path, key: str) -> None:
    sample = SAMPLES[key]
    found = ""
    for place, service in enumerate(("main", "db")):
        given, otherwise = (
            load(tmp_path / f"{service}{number}", *(keys if place == each else "" for each in range(2)))
            for number, keys in enumerate((sample.given, sample.otherwise))
        )
        found += outcome(given, otherwise, f"services.{service}")
    assert found == sample.outcomes


@pytest.mark.parametrize("key", FILE_SAMPLES)
def test_a_key_of_the_file_is_followed_ignored_or_refused(tmp_path: Path, key: str) -> None:
    expected, text = FILE_SAMPLES[key]
    given, otherwise = (load(tmp_path / name, "", "", each) for name, each in (("a", text), ("b", "")))
    assert outcome(given, otherwise, key.partition(".")[0]) == expected


def test_every_remark_is_of_a_key_that_a_service_may_have() -> None:
    assert REMARKS.keys() <= {each.removeprefix("services.") for each in spec_keys()}


def test_a_key_that_compose_does_not_have_is_named(tmp_path: Path) -> None:
    (problem,) = load(tmp_path, "", "comand: serve").problems
    assert "services.db: comand (Compose has no such key)" in str(problem)
