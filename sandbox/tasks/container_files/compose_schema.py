"""The schema of compose files. Every key of the Compose specification is here: followed, ignored because it changes
nothing that agent or tests see, remarked on, or refused with the reason, which makes the task unusable.

Ignored, because longshore manages a container's life itself: how it is stopped, ``init``, ``logging``, ``labels`` …
:data:`sandbox.tasks.container_files.compose.REMARKS` has those that are remarked on. Variables as in ``variables``;
those of the harness are defined.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sandbox.tasks.container_files.compose_sections import (
    Build,
    ComposeDependency,
    ComposeDeploy,
    ComposeHealthcheck,
    ComposeNamedVolume,
    ComposeNetwork,
    ComposeServiceNetwork,
    ComposeVolume,
    EnvFile,
    Ulimit,
    Volume,
)
from sandbox.tasks.container_files.compose_values import (
    ByName,
    ComposeMapping,
    ComposeSection,
    Cpus,
    HostName,
    Ignored,
    Mebibytes,
    One,
    Pids,
    absolute_path,
    as_list,
    refuse,
)

_MOST_SERVICES, _MOST_VOLUMES = 100, 100
"""Of a file and of a service; a task has far fewer services yet."""

TmpfsFolder = Annotated[str, Field(pattern="^/")]
_NAMESPACE = "a container has namespaces of its own: remove it"
_HOST = "nothing of the host is a sandbox's: remove it"
_HARDWARE = "sandboxes have no devices of the host"
_RIGHTS = "a container has no more rights than every sandbox (docs/security.md): remove it"
_KERNEL = "settings of the kernel are every sandbox's: remove it"
_PROCESSORS = "processors are limited by cpus alone: write cpus"
_NAMES = "a name leads only to services of the file, and where the task's network lets it: remove it"
_WINDOWS = "only Windows has it: remove it"
_FILE = "only volumes bring files: write ./FILE:/path"
_MODEL = "a task has no model beside the agent's: remove it"


class ComposeService(ComposeSection):
    """Keys that every service may have."""

    image: str = ""
    build: Build | None = None
    entrypoint: str | list[str] | None = None
    command: str | list[str] | None = None
    working_dir: Annotated[str, AfterValidator(absolute_path)] = ""
    user: Annotated[str, Field(coerce_numbers_to_str=True)] = ""
    environment: ComposeMapping = Field(default_factory=dict)
    env_file: Annotated[list[EnvFile], BeforeValidator(as_list)] = Field(default_factory=list[EnvFile])
    mem_limit: Mebibytes | None = None
    cpus: Cpus | None = None
    pids_limit: Pids | None = None
    deploy: ComposeDeploy = ComposeDeploy()
    scale: One = 1
    container_name: HostName = ""
    hostname: HostName = ""
    networks: Annotated[dict[str, ComposeServiceNetwork | None], ByName] = Field(
        default_factory=dict[str, ComposeServiceNetwork | None]
    )
    links: list[str] = Field(default_factory=list[str])
    depends_on: Annotated[dict[str, ComposeDependency], ByName] = Field(default_factory=dict[str, ComposeDependency])
    profiles: list[str] = Field(default_factory=list[str])
    shm_size: Mebibytes | None = None
    tmpfs: Annotated[list[TmpfsFolder], BeforeValidator(as_list)] = Field(default_factory=list[str])
    volumes: list[Volume] = Field(default_factory=list[ComposeVolume], max_length=_MOST_VOLUMES)
    ulimits: dict[str, Ulimit] = Field(default_factory=dict[str, Ulimit])
    cap_add: list[str] = Field(default_factory=list[str])
    cap_drop: list[str] = Field(default_factory=list[str])
    healthcheck: ComposeHealthcheck = ComposeHealthcheck()

    ports: list[Any] = Field(default_factory=list[Any])
    platform: Ignored = None
    blkio_config: Ignored = None
    cpu_count: Ignored = None
    cpu_percent: Ignored = None
    cpu_shares: Ignored = None
    mem_reservation: Ignored = None
    mem_swappiness: Ignored = None
    memswap_limit: Ignored = None
    oom_kill_disable: Ignored = None
    oom_score_adj: Ignored = None

    annotations: Ignored = None
    attach: Ignored = None
    develop: Ignored = None
    expose: Ignored = None
    init: Ignored = None
    label_file: Ignored = None
    labels: Ignored = None
    logging: Ignored = None
    pre_stop: Ignored = None
    pull_policy: Ignored = None
    pull_refresh_after: Ignored = None
    stop_grace_period: Ignored = None
    stop_signal: Ignored = None

    cgroup: Annotated[Ignored, refuse(_NAMESPACE, "private")] = None
    cgroup_parent: Annotated[Ignored, refuse(_HOST)] = None
    configs: Annotated[Ignored, refuse(_FILE)] = None
    cpu_period: Annotated[Ignored, refuse(_PROCESSORS)] = None
    cpu_quota: Annotated[Ignored, refuse(_PROCESSORS)] = None
    cpu_rt_period: Annotated[Ignored, refuse(_PROCESSORS)] = None
    cpu_rt_runtime: Annotated[Ignored, refuse(_PROCESSORS)] = None
    cpuset: Annotated[Ignored, refuse(_PROCESSORS)] = None
    credential_spec: Annotated[Ignored, refuse(_WINDOWS)] = None
    device_cgroup_rules: Annotated[Ignored, refuse(_HARDWARE)] = None
    devices: Annotated[Ignored, refuse(_HARDWARE)] = None
    dns: Annotated[Ignored, refuse(_NAMES)] = None
    dns_opt: Annotated[Ignored, refuse(_NAMES)] = None
    dns_search: Annotated[Ignored, refuse(_NAMES)] = None
    domainname: Annotated[Ignored, refuse("write the whole name as hostname")] = None
    extends: Annotated[Ignored, refuse("write the keys of the other service into this one")] = None
    external_links: Annotated[Ignored, refuse(_NAMES)] = None
    extra_hosts: Annotated[Ignored, refuse(_NAMES)] = None
    gpus: Annotated[Ignored, refuse(_HARDWARE)] = None
    group_add: Annotated[Ignored, refuse("a user has its image's groups: add it there")] = None
    ipc: Annotated[Ignored, refuse(_NAMESPACE, "private", "shareable")] = None
    isolation: Annotated[Ignored, refuse(_WINDOWS, "default")] = None
    mac_address: Annotated[Ignored, refuse("the addresses of a private network are longshore's: remove it")] = None
    models: Annotated[Ignored, refuse(_MODEL)] = None
    pid: Annotated[Ignored, refuse(_NAMESPACE)] = None
    post_start: Annotated[Ignored, refuse("write it into entrypoint or command")] = None
    privileged: Annotated[Ignored, refuse(_RIGHTS)] = None
    provider: Annotated[Ignored, refuse("only containers are services: remove it")] = None
    runtime: Annotated[Ignored, refuse(_HOST, "runc")] = None
    secrets: Annotated[Ignored, refuse(_FILE)] = None
    storage_opt: Annotated[Ignored, refuse("a container has the disk of every sandbox: remove it")] = None
    sysctls: Annotated[Ignored, refuse(_KERNEL)] = None
    use_api_socket: Annotated[Ignored, refuse(_HOST)] = None
    userns_mode: Annotated[Ignored, refuse(_NAMESPACE)] = None
    uts: Annotated[Ignored, refuse(_NAMESPACE)] = None
    volumes_from: Annotated[Ignored, refuse("write a named volume into both services")] = None

    @model_validator(mode="after")
    def _move_memory_folders(self) -> ComposeService:
        """Make each volume in memory a folder of ``tmpfs``."""
        for each in self.volumes:
            if each.type == "tmpfs":
                size = "" if each.tmpfs.size is None else f"size={each.tmpfs.size}m"
                mode = "" if each.tmpfs.mode is None else f"mode={each.tmpfs.mode:o}"
                self.tmpfs.append(":".join(filter(None, (each.target, ",".join(filter(None, (size, mode)))))))
        self.volumes = [each for each in self.volumes if each.type != "tmpfs"]
        return self


class ComposeAgentService(ComposeService):
    network_mode: Literal["", "none", "bridge"] = ""
    read_only: Annotated[Ignored, refuse("an agent can write to its container, and longshore does")] = None
    restart: Ignored = None
    security_opt: Annotated[Ignored, refuse(_RIGHTS)] = None
    stdin_open: Ignored = None
    tty: Ignored = None


class ComposeSideService(ComposeService):
    """A service beside the agent's."""

    network_mode: Annotated[Ignored, refuse("every service is on the task's private network: remove it")] = None
    read_only: bool = False
    restart: Annotated[str, Field(pattern=r"^(|no|always|unless-stopped|on-failure(:\d{1,9})?)$")] = "no"
    security_opt: list[
        Annotated[str, refuse(_RIGHTS, "no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")]
    ] = Field(default_factory=list[str])
    stdin_open: bool = False
    tty: bool = False


class ComposeFile(ComposeSection):
    services: Annotated[dict[str, dict[str, Any]], Field(max_length=_MOST_SERVICES)]
    networks: dict[str, ComposeNetwork | None] = Field(default_factory=dict)
    volumes: dict[str, ComposeNamedVolume | None] = Field(default_factory=dict)
    configs: Ignored = None
    """Only a service that has one matters; like secrets."""
    secrets: Ignored = None
    name: Ignored = None
    version: Ignored = None
    include: Annotated[Ignored, refuse("write what it includes into the file")] = None
    models: Annotated[Ignored, refuse(_MODEL)] = None
