"""If these fail, what a compose file says of a service is dropped in silence, or lost when the task is rewritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.http.task_codec import TaskRefused, decode_task, encode_task
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.formats.folders import load_task_folder, write_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.service_order import order_services
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ServiceCondition
from sandbox.tasks.task_network import NetworkMode

FILES = {
    "task.toml": "",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM debian\nRUN true\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
}


def load(parent: Path, compose: str, **more: str) -> LoadedTask:
    files = FILES | {"environment/docker-compose.yaml": f"services:\n{compose}"} | more
    for path, text in files.items():
        (parent / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / "a" / path).write_text(text)
    return load_task_folder(HARBOR, parent / "a")


def read(parent: Path, compose: str, **more: str) -> Task:
    """Return a task that has no remark, and that its own format can hold without a file of ours."""
    loaded = load(parent, compose, **more)
    task = loaded.require_task()
    assert loaded.remarks == ()
    written = write_task_folder(HARBOR, task, parent / "again")
    again = load_task_folder(HARBOR, written).require_task()
    assert (again.services, again.build, again.ulimits) == (task.services, task.build, task.ulimits)
    assert again.aliases == task.aliases
    own = (written / "longshore.yaml").read_text() if (written / "longshore.yaml").exists() else ""
    assert not {"services", "build", "ulimits", "aliases"} & {line.partition(":")[0] for line in own.splitlines()}
    return task


@pytest.mark.parametrize(
    ("lines", "entrypoint", "command"),
    [
        ("", None, ()),
        ("command: serve 'a b'", None, ("serve", "a b")),
        ("entrypoint: /entry 'a b'", ("/entry", "a b"), ()),
        ('entrypoint: ["$$A"], command: [b]', ("$A",), ("b",)),
        ("entrypoint: []", (), ()),
        ("entrypoint: null", None, ()),
    ],
)
def test_a_service_starts_what_it_names(
    tmp_path: Path, lines: str, entrypoint: tuple[str, ...] | None, command: tuple[str, ...]
) -> None:
    (db,) = read(tmp_path, f"  db: {{image: 'postgres:16', {lines}}}\n").services
    assert (db.entrypoint, db.command) == (entrypoint, command)


def test_a_service_has_the_user_the_folder_and_the_host_name_that_it_names(tmp_path: Path) -> None:
    (db,) = read(
        tmp_path, "  db: {image: 'postgres:16', user: 1000:50, working_dir: /srv//a/, hostname: db-1.a}\n"
    ).services
    assert (db.user, db.workdir, db.hostname) == ("1000:50", "/srv/a", "db-1.a")
    (number,) = read(tmp_path / "b", "  db: {image: 'postgres:16', user: 999}\n").services
    assert number.user == "999"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("working_dir: srv", "'srv' is not an absolute path: write /srv"),
        ('entrypoint: "serve \'a"', "db.entrypoint"),
        ("entrypoint: {a: b}", "entrypoint"),
        ("user: [a]", "user"),
        ("hostname: a b", "'a b' is not a host name"),
        ('command: ["a\\0"]', "entrypoint or command has a NUL byte"),
    ],
)
def test_a_wrong_value_of_a_service_is_named(tmp_path: Path, lines: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  db: {{image: 'postgres:16', {lines}}}\n").problems))


def test_a_services_folder_in_longshores_own_file_is_absolute(tmp_path: Path) -> None:
    """Docker would refuse the container, which would count as a failure of the machine."""
    own = {"longshore.yaml": "services: [{name: db, image: 'postgres:16', workdir: srv}]\n"}
    assert "workdir: 'srv'" in str(load(tmp_path, "  main: {}\n", **own).problems)


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        ({}, ".dockerignore\n.longshore-Dockerfile\n"),
        ({"environment/.dockerignore": "*.md\n!**"}, "*.md\n!**\n.longshore-Dockerfile\n"),
    ],
)
def test_a_dockerfile_may_be_a_text_in_the_compose_file(tmp_path: Path, given: dict[str, str], ignored: str) -> None:
    """As in Compose, what it copies does not contain it."""
    lines = "FROM debian\\nWORKDIR /srv\\nCOPY . /srv\\nRUN echo $$HOME ${A:-b}\\n"
    task = read(tmp_path, f'  main: {{build: {{dockerfile_inline: "{lines}", args: {{V: 1}}}}}}\n', **given)
    assert task.build is not None
    assert task.build.files[task.build.dockerfile] == b"FROM debian\nWORKDIR /srv\nCOPY . /srv\nRUN echo $HOME b\n"
    assert task.build.files[".dockerignore"].decode() == ignored
    assert (task.build.args, task.workdir) == ({"V": "1"}, "/srv")
    assert "docker-compose.yaml" in task.build.files, "all of the folder is copied"


def test_a_services_dockerfile_may_be_a_text_too(tmp_path: Path) -> None:
    build = '{context: ./db, dockerfile_inline: "FROM postgres:16\\nCOPY x /\\n"}'
    (db,) = read(tmp_path, f"  db: {{build: {build}}}\n", **{"environment/db/x": "1"}).services
    assert db.build is not None
    assert (db.build.files[db.build.dockerfile], db.build.files["x"]) == (b"FROM postgres:16\nCOPY x /\n", b"1")


@pytest.mark.parametrize(
    ("build", "what"),
    [
        ("{dockerfile: A, dockerfile_inline: FROM a}", "dockerfile and dockerfile_inline exclude each other"),
        ("{dockerfile_inline: RUN true}", "names no image"),
        ('{dockerfile_inline: "FROM a\\nCOPY absent /"}', "copies 'absent', which is not in its context"),
        ("{dockerfile_inline: [a]}", "build.dockerfile_inline"),
    ],
)
def test_a_wrong_dockerfile_in_the_compose_file_is_named(tmp_path: Path, build: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  main: {{build: {build}}}\n").problems))


@pytest.mark.parametrize(
    ("lines", "limits"),
    [
        ("nofile: 65536", (ProcessLimit("nofile", 65536, 65536),)),
        ("nofile: {soft: 1024, hard: '4096'}", (ProcessLimit("nofile", 1024, 4096),)),
        ("memlock: {soft: -1, hard: -1}, core: '0'", (ProcessLimit("memlock", -1, -1), ProcessLimit("core", 0, 0))),
        ("nproc: 65535, stack: {soft: 67108864, hard: -1}",
         (ProcessLimit("nproc", 65535, 65535), ProcessLimit("stack", 64 << 20, -1))),
    ],
)  # fmt: skip
def test_limits_of_each_process_are_those_of_the_compose_file(
    tmp_path: Path, lines: str, limits: tuple[ProcessLimit, ...]
) -> None:
    task = read(tmp_path, f"  main: {{ulimits: {{{lines}}}}}\n  db: {{image: 'db:1', ulimits: {{{lines}}}}}\n")
    assert (task.ulimits, task.services[0].ulimits) == (limits, limits)
    assert decode_task(encode_task(task)) == task


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("core: -1", "ulimits: core -1:-1 (a sandbox writes no core dumps"),
        ("core: {soft: 0, hard: 1}", "writes no core dumps"),
        ("nofile: 100", "need 256"),
        ("nofile: {soft: 100, hard: 1000}", "need 256"),
        ("nofile: -1", "kernels allow 1,048,576"),
        ("nofile: 2000000", "kernels allow 1,048,576"),
        ("nofile: {soft: 2000, hard: 1000}", "the soft limit is above the hard one"),
        ("memlock: {soft: -1, hard: 100000}", "the soft limit is above the hard one"),
        ("nproc: 100", "in all sandboxes together"),
        ("stack: 4096", "need 1 MiB"),
        ("rtprio: 1", "only core, memlock, nofile, nproc, stack can be set"),
        ("nofile: many", "ulimits.nofile"),
        ("nofile: {soft: 1024}", "ulimits.nofile.hard"),
    ],
)
@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
def test_limits_that_no_sandbox_can_have_are_named(tmp_path: Path, service: str, lines: str, what: str) -> None:
    assert what in "\n".join(map(str, load(tmp_path, f"  {service}ulimits: {{{lines}}}}}\n").problems))


@pytest.mark.parametrize("given", ["['host.docker.internal:host-gateway']", "{a.example: 127.0.0.1}"])
@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
def test_names_of_hosts_are_refused_with_the_reason(tmp_path: Path, service: str, given: str) -> None:
    (problem,) = load(tmp_path, f"  {service}extra_hosts: {given}}}\n").problems
    assert "extra_hosts" in str(problem)
    assert "a name leads only to services of the file" in str(problem)
    assert load(tmp_path / "none", f"  {service}extra_hosts: []}}\n").problems == ()


@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
@pytest.mark.parametrize(
    ("lines", "what", "why"),
    [
        ("networks: {default: {aliases: [a b]}}", "networks.default.aliases.0", "'a b' is not a host name"),
        ("networks: {n: null, default: null}", "networks: n", "the file has no such network"),
        ("networks: {default: {ipv4_address: 10.0.0.1}}", "default.ipv4_address", "reach each other by their names"),
        ("depends_on: {absent: {condition: service_healthy}}", "depends_on: absent", "Compose starts no such service"),
        ("depends_on: {a: {condition: done}}", "depends_on.a.condition", "must be 'service_started'"),
        ("links: ['absent:a']", "links: absent", "Compose starts no such service"),
    ],
)
def test_what_a_service_cannot_say_of_others_is_named_once(
    tmp_path: Path, service: str, lines: str, what: str, why: str
) -> None:
    (problem,) = load(tmp_path, f"  {service}{lines}}}\n").problems
    assert problem.what.endswith(what)
    assert why in problem.why


def test_a_service_is_reached_by_all_its_names_and_the_agent_too(tmp_path: Path) -> None:
    compose = """\
  main: {links: ['db:database'], container_name: shop, networks: {default: {aliases: [app, main]}}}
  db:
    image: 'db:1'
    container_name: db-1
    networks: {default: {aliases: [store, db, store]}}
  web: {image: 'web:1', links: [db], networks: {default: null}}
"""
    task = read(tmp_path, compose)
    assert task.aliases == ("main", "shop", "app")
    assert task.service_names == ("db", "db-1", "store", "database", "web")
    assert decode_task(encode_task(task)) == task


def test_a_link_to_the_agents_container_is_one_of_its_names(tmp_path: Path) -> None:
    loaded = load(tmp_path, "  db: {image: 'db:1', links: ['main:shown']}\n")
    assert loaded.require_task().aliases == ("main", "shown")
    (remark,) = loaded.remarks
    assert "services.db.links: main is not followed: the agent's container starts after all services" in remark


def test_a_task_without_services_has_no_names(tmp_path: Path) -> None:
    assert read(tmp_path, "  main: {container_name: shop}\n").aliases == ()


@pytest.mark.parametrize(
    "links",
    [
        "db: {image: 'db:1', links: ['web:main']}\n  web: {image: 'web:1'}",
        "db: {image: 'db:1', links: ['web:x']}\n  web: {image: 'web:1', links: ['main:x']}",
        "db: {image: 'db:1', links: ['main:x']}\n  web: {image: 'web:1', container_name: x}",
    ],
)
def test_a_link_whose_name_others_have_on_the_network_is_named(tmp_path: Path, links: str) -> None:
    """In Compose it leads to one of them in one service, and to another one elsewhere."""
    (problem,) = load(tmp_path, f"  {links}\n").problems
    assert "the link" in problem.what
    assert problem.why == "others have that name on the network: choose another"


def test_services_start_after_those_on_which_they_depend(tmp_path: Path) -> None:
    compose = """\
  main: {depends_on: {seed: {condition: service_completed_successfully}}}
  web:
    image: 'web:1'
    depends_on:
      schema: {condition: service_completed_successfully}
      db: {condition: service_healthy}
  schema: {image: 'db:1', depends_on: [db]}
  seed: {image: 'db:1', links: ['schema:x'], depends_on: {db: {condition: service_healthy}}}
  db: {image: 'db:1'}
"""
    task = read(tmp_path, compose)
    web, schema, seed, db = task.services
    assert web.depends_on == {"schema": ServiceCondition.COMPLETED, "db": ServiceCondition.HEALTHY}
    assert schema.depends_on == {"db": ServiceCondition.STARTED}
    assert seed.depends_on == {"schema": ServiceCondition.STARTED, "db": ServiceCondition.HEALTHY}
    assert [each.ends for each in (web, schema, seed, db)] == [False, True, True, False]
    assert next(order_services(task.services)) is db
    assert decode_task(encode_task(task)) == task


def test_services_that_depend_on_each_other_are_named(tmp_path: Path) -> None:
    compose = "  a: {image: 'a:1', depends_on: [b]}\n  b: {image: 'b:1', links: [a]}\n"
    (problem,) = load(tmp_path, compose).problems
    assert "services depend on each other: " in problem.what


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("{name: a, image: 'a:1', depends_on: {b: started}}", "service a depends on 'b'"),
        ("{name: a, image: 'a:1', depends_on: {b: completed}}, {name: b, image: 'b:1'}", "depends on the end of 'b'"),
        ("{name: a, image: 'a:1', capabilities: [SYS_ADMIN]}", "service a: capabilities SYS_ADMIN"),
        ("{name: a, image: 'a:1', restart: sometimes}", "service a: restart 'sometimes'"),
        ("{name: a, image: 'a:1', pids: 0}", "service a: pids is 0"),
        ("{name: a, image: 'a:1', aliases: ['a b']}", "the service name 'a b'"),
    ],
)
def test_a_wrong_service_in_longshores_own_file_is_named(tmp_path: Path, given: str, what: str) -> None:
    own = {"longshore.yaml": f"services: [{given}]\n"}
    assert what in "\n".join(map(str, load(tmp_path, "  main: {}\n", **own).problems))


@pytest.mark.parametrize("condition", ["service_healthy", "service_completed_successfully"])
def test_a_service_that_waits_for_more_than_the_agents_start_is_named(tmp_path: Path, condition: str) -> None:
    compose = f"  db: {{image: 'db:1', depends_on: {{main: {{condition: {condition}}}}}}}\n"
    (problem,) = load(tmp_path, compose).problems
    assert problem.what.endswith("services.db.depends_on: main.condition")


def test_a_service_that_depends_on_the_agents_is_remarked_on_and_starts_before_it(tmp_path: Path) -> None:
    loaded = load(tmp_path, "  db: {image: 'db:1', depends_on: [main]}\n")
    assert loaded.require_task().services[0].depends_on == {}
    (remark,) = loaded.remarks
    assert "services.db.depends_on: main is not followed" in remark


def test_a_dependency_that_is_not_required_may_be_absent(tmp_path: Path) -> None:
    compose = "  db: {image: 'db:1', depends_on: {web: {required: false}}}\n  web: {image: w, profiles: [debug]}\n"
    (remark,) = load(tmp_path, compose).remarks
    assert "services.web is left out" in remark


@pytest.mark.parametrize(
    ("main", "db", "networks"),
    [
        ("", "networks: [back]", "{back: null}"),
        ("networks: [front]", "networks: [back]", "{front: null, back: null}"),
    ],
)
def test_services_that_are_to_be_out_of_reach_of_each_other_are_named(
    tmp_path: Path, main: str, db: str, networks: str
) -> None:
    compose = f"  main: {{{main}}}\n  db: {{image: 'db:1', {db}}}\nnetworks: {networks}\n"
    (problem,) = load(tmp_path, compose).problems
    assert problem.what.endswith("services main and db have no network in common")


@pytest.mark.parametrize("context", ["https://example.org/a/b.git#main:dir", "git@example.org:a/b.git"])
def test_a_build_context_that_an_engine_would_fetch_is_named(tmp_path: Path, context: str) -> None:
    (problem,) = load(tmp_path, f"  db: {{build: {{context: '{context}'}}}}\n").problems
    assert f"'{context}' is not the task's own" in f"{problem}"


def test_services_of_several_networks_with_one_in_common_are_usable(tmp_path: Path) -> None:
    compose = (
        "  main: {networks: [front, back]}\n  db: {image: 'db:1', networks: {back: {aliases: [store]}}}\n"
        "networks: {front: {internal: true}, back: {driver: bridge}}\n"
    )
    task = read(tmp_path, compose)
    assert task.service_names == ("db", "store")
    assert task.network.agent is NetworkMode.FULL


def test_an_agent_whose_networks_are_all_internal_has_no_other(tmp_path: Path) -> None:
    compose = "  main: {}\n  db: {image: 'db:1'}\nnetworks: {default: {internal: true}}\n"
    assert read(tmp_path, compose).network.agent is NetworkMode.NONE


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ("{interval: 5s}", ""),
        ("{test: [CMD, a, 'b c']}", "a 'b c'"),
        ("{test: a, disable: true}", None),
        ("{disable: true}", None),
        ("{test: [NONE]}", None),
    ],
)
def test_a_service_has_its_images_check_unless_it_names_another_or_none(
    tmp_path: Path, given: str, check: str | None
) -> None:
    task = read(tmp_path, f"  db: {{image: 'db:1', healthcheck: {given}}}\n")
    assert task.services[0].healthcheck == check
    assert decode_task(encode_task(task)) == task


ADDED = ("SETPCAP", "NET_BIND_SERVICE", "IPC_LOCK")


@pytest.mark.parametrize(
    ("lines", "capabilities"),
    [
        ("cap_drop: [ALL]", ()),
        ("cap_drop: [all], cap_add: [CAP_CHOWN, net_bind_service]", ("CHOWN", "NET_BIND_SERVICE")),
        ("cap_drop: [CHOWN, CAP_KILL, NET_RAW]", tuple(sorted({*BASE_CAPABILITIES} - {"CHOWN", "KILL"}))),
        ("cap_drop: [CHOWN], cap_add: [CHOWN]", BASE_CAPABILITIES),
        (f"cap_add: [{', '.join(ADDED)}]", (*BASE_CAPABILITIES, *ADDED)),
    ],
)
def test_a_service_has_the_capabilities_that_docker_would_leave_it(
    tmp_path: Path, lines: str, capabilities: tuple[str, ...]
) -> None:
    task = read(tmp_path, f"  db: {{image: 'db:1', {lines}}}\n")
    assert sorted(task.services[0].capabilities) == sorted(capabilities)
    assert decode_task(encode_task(task)) == task


@pytest.mark.parametrize("name", ["NET_RAW", "MKNOD", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "SYS_NICE", "ALL"])
@pytest.mark.parametrize("service", ["main: {", "db: {image: 'db:1', "])
def test_capabilities_that_are_not_safe_are_named(tmp_path: Path, service: str, name: str) -> None:
    (problem,) = load(tmp_path, f"  {service}cap_add: [{name}]}}\n").problems
    assert f"cap_add: {name}" in str(problem)


def test_an_agents_container_keeps_the_capabilities_that_every_sandbox_has(tmp_path: Path) -> None:
    assert read(tmp_path / "a", "  main: {cap_drop: [NET_RAW, MKNOD, SYS_ADMIN]}\n")
    (problem,) = load(tmp_path / "b", "  main: {cap_drop: [ALL], cap_add: [KILL]}\n").problems
    assert "cap_drop: CHOWN, DAC_OVERRIDE" in problem.what


@pytest.mark.parametrize(
    ("lines", "restart"),
    [
        ("", ""),
        ("restart: no", ""),
        ("restart: 'no'", ""),
        ("restart: unless-stopped", "always"),
        ("restart: on-failure", "on-failure"),
        ("restart: 'on-failure:3'", "on-failure:3"),
        ("restart: 'on-failure:0'", "on-failure"),
        ("restart: always, deploy: {restart_policy: {condition: none}}", ""),
        ("deploy: {restart_policy: {max_attempts: 0}}", "always"),
        ("deploy: {restart_policy: {condition: on-failure, max_attempts: 2}}", "on-failure:2"),
    ],
)
def test_a_service_starts_again_as_it_says(tmp_path: Path, lines: str, restart: str) -> None:
    task = read(tmp_path, f"  db: {{image: 'db:1', {lines}}}\n")
    assert task.services[0].restart == restart
    assert decode_task(encode_task(task)) == task


def test_a_services_own_limits_terminal_and_file_system_are_those_of_the_file(tmp_path: Path) -> None:
    lines = "pids_limit: 99, read_only: true, tty: true, stdin_open: true, security_opt: ['no-new-privileges:true']"
    task = read(tmp_path, f"  db: {{image: 'db:1', {lines}}}\n")
    (db,) = task.services
    assert (db.pids, db.read_only, db.tty, db.stdin_open) == (99, True, True, True)
    assert decode_task(encode_task(task)) == task


def test_a_task_from_outside_has_no_service_beyond_its_bounds(tmp_path: Path) -> None:
    task = read(tmp_path, "  db: {image: 'db:1'}\n")
    changes: list[dict[str, Any]] = [
        {"capabilities": ("SYS_ADMIN",)},
        {"pids": 1 << 20},
        {"restart": "$(reboot)"},
        {"aliases": ("a b",)},
        {"depends_on": {"absent": ServiceCondition.STARTED}},
    ]
    for change in changes:
        sent = encode_task(replace(task, services=(replace(task.services[0], **change),)))
        with pytest.raises(TaskRefused, match=f"services.0.{next(iter(change))}|services$"):
            decode_task(sent)
