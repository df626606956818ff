"""The sections of a service in a compose file, such as ``build`` and ``healthcheck``, as schemas.

Every key of the Compose specification is declared: what is ``Ignored`` has no effect, and what is
refused says why.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sandbox.tasks.container_files.compose_values import (
    ComposeMapping,
    ComposeSection,
    Cpus,
    HostName,
    Ignored,
    Mebibytes,
    One,
    Pids,
    Seconds,
    refuse,
)

_OUTSIDE_CONTEXT = "a build has its context and nothing else of the host: put it there"
_ENGINES_OWN = "a build has what the engine gives to all builds: remove it"


_ADDRESS_OF_CONTEXT = re.compile(r"[a-z+]+://|git@|github\.com/")


def _own_context(context: str) -> str:
    """Raises ValueError for a context that an engine would fetch."""
    if _ADDRESS_OF_CONTEXT.match(context):
        raise ValueError(f"{context!r} is not the task's own: a build fetches no context, so put its files there")
    return context


class ComposeBuild(ComposeSection):
    context: Annotated[str, AfterValidator(_own_context)] = "."
    dockerfile: str = ""
    dockerfile_inline: str = ""
    args: ComposeMapping = Field(default_factory=dict)
    target: str = ""
    network: Literal["", "default", "host", "none"] = ""
    shm_size: Ignored = None
    ulimits: Ignored = None
    platforms: Ignored = None
    cache_from: Ignored = None
    cache_to: Ignored = None
    labels: Ignored = None
    no_cache: Ignored = None
    provenance: Ignored = None
    pull: Ignored = None
    sbom: Ignored = None
    tags: Ignored = None
    additional_contexts: Annotated[Ignored, refuse(_OUTSIDE_CONTEXT)] = None
    secrets: Annotated[Ignored, refuse(_OUTSIDE_CONTEXT)] = None
    ssh: Annotated[Ignored, refuse(_OUTSIDE_CONTEXT)] = None
    entitlements: Annotated[Ignored, refuse(_ENGINES_OWN)] = None
    extra_hosts: Annotated[Ignored, refuse(_ENGINES_OWN)] = None
    isolation: Annotated[Ignored, refuse(_ENGINES_OWN, "default")] = None
    privileged: Annotated[Ignored, refuse(_ENGINES_OWN)] = None

    @model_validator(mode="after")
    def _check_dockerfile(self) -> ComposeBuild:
        if self.dockerfile and self.dockerfile_inline:
            raise ValueError("dockerfile and dockerfile_inline exclude each other: name one of them")
        return self


class ComposeLimits(ComposeSection):
    cpus: Cpus | None = None
    memory: Mebibytes | None = None
    pids: Pids | None = None


_HARDWARE = "sandboxes have no devices of the host"


class ComposeReservations(ComposeSection):
    cpus: Ignored = None
    memory: Ignored = None
    devices: Annotated[Ignored, refuse(_HARDWARE)] = None
    generic_resources: Annotated[Ignored, refuse(_HARDWARE)] = None


class ComposeResources(ComposeSection):
    limits: ComposeLimits = ComposeLimits()
    reservations: ComposeReservations = ComposeReservations()


class ComposeRestartPolicy(ComposeSection):
    condition: Literal["none", "on-failure", "any"] = "any"
    max_attempts: Annotated[int, Field(ge=0)] = 0
    delay: Ignored = None
    window: Ignored = None


class ComposeDeploy(ComposeSection):
    """This has the keys of ``deploy`` that Docker Compose follows; the others are for a cluster of Docker's."""

    resources: ComposeResources = ComposeResources()
    replicas: One = 1
    restart_policy: ComposeRestartPolicy | None = None
    endpoint_mode: Ignored = None
    labels: Ignored = None
    mode: Ignored = None
    placement: Ignored = None
    rollback_config: Ignored = None
    update_config: Ignored = None


def _check_health_test(value: str | list[str]) -> str | list[str]:
    """Raises ValueError for a list that Compose refuses."""
    if isinstance(value, list) and value and value[0] not in {"NONE", "CMD", "CMD-SHELL"}:
        raise ValueError(f"a list begins with NONE, CMD or CMD-SHELL, not with {value[0]!r}")
    return value


class ComposeHealthcheck(ComposeSection):
    test: Annotated[str | list[str], AfterValidator(_check_health_test)] = ""
    disable: bool = False
    interval: Seconds = 0.0
    """Like the others: 0 for Docker's default."""
    timeout: Seconds = 0.0
    retries: Annotated[int, Field(ge=0)] = 0
    start_period: Seconds = 0.0
    start_interval: Seconds = 0.0


class ComposeDependency(ComposeSection):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"] = "service_started"
    required: bool = True
    """False if Compose starts what depends on it also if there is no such service."""
    restart: Ignored = None


def _short_build(value: object) -> object:
    return {"context": value} if isinstance(value, str) else value


Build = Annotated[ComposeBuild, BeforeValidator(_short_build)]


class ComposeEnvFile(ComposeSection):
    path: str
    required: bool = True
    format: Annotated[Ignored, refuse("a file is read as Compose reads its own: remove it")] = None


def _short_env_file(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


EnvFile = Annotated[ComposeEnvFile, BeforeValidator(_short_env_file)]


class ComposeUlimit(ComposeSection):
    soft: int
    hard: int


def _short_ulimit(value: object) -> object:
    """Convert ``1024`` to ``{soft: 1024, hard: 1024}``."""
    return {"soft": value, "hard": value} if isinstance(value, int | str) else value


Ulimit = Annotated[ComposeUlimit, BeforeValidator(_short_ulimit)]


class ComposeVolumeOptions(ComposeSection):
    nocopy: Annotated[Ignored, refuse("a new volume has what the image has in the folder")] = None
    subpath: Annotated[Ignored, refuse("a volume is mounted as a whole")] = None
    labels: Ignored = None


class ComposeTmpfsOptions(ComposeSection):
    size: Mebibytes | None = None
    mode: int | None = None


_VOLUME = re.compile(r"(?:(?P<source>[^:]+):)?(?P<target>/[^:]*)(?::(?P<options>[A-Za-z,]+))?")


class ComposeVolume(ComposeSection):
    type: Literal["bind", "volume", "tmpfs"]
    source: str = ""
    """Path on the host, or name of a volume; empty for a volume without a name."""
    target: Annotated[str, Field(pattern="^/")]
    read_only: bool = False
    bind: Ignored = None
    volume: ComposeVolumeOptions = ComposeVolumeOptions()
    tmpfs: ComposeTmpfsOptions = ComposeTmpfsOptions()
    image: Annotated[Ignored, refuse("files of images come by a Dockerfile's COPY --from")] = None
    consistency: Ignored = None


def _short_volume(value: object) -> object:
    """Convert ``./data:/data:ro`` to the long form."""
    if not isinstance(value, str):
        return value
    found = _VOLUME.fullmatch(value)
    if not found:
        raise ValueError(f"{value!r} is not a volume: write ./folder:/path or name:/path")
    source, options = found["source"] or "", (found["options"] or "").split(",")
    kind = "bind" if source.startswith((".", "/", "~")) else "volume"
    volume = {"nocopy": "nocopy" in options}
    return {
        "type": kind,
        "source": source,
        "target": found["target"],
        "read_only": "ro" in options,
        "volume": volume,
    }


Volume = Annotated[ComposeVolume, BeforeValidator(_short_volume)]


_ADDRESS = "the addresses of a private network are longshore's: services reach each other by their names"


class ComposeServiceNetwork(ComposeSection):
    """A service has one of these for each network that it is on."""

    aliases: list[HostName] = Field(default_factory=list[str])
    gw_priority: Ignored = None
    priority: Ignored = None
    driver_opts: Annotated[Ignored, refuse("private networks are Docker's bridges: remove it")] = None
    interface_name: Annotated[Ignored, refuse("the interface's name is the engine's")] = None
    ipv4_address: Annotated[Ignored, refuse(_ADDRESS)] = None
    ipv6_address: Annotated[Ignored, refuse(_ADDRESS)] = None
    link_local_ips: Annotated[Ignored, refuse(_ADDRESS)] = None
    mac_address: Annotated[Ignored, refuse(_ADDRESS)] = None


class ComposeNetwork(ComposeSection):
    """A network of the file."""

    driver: Literal["bridge"] = "bridge"
    internal: bool = False
    attachable: Ignored = None
    enable_ipv4: Ignored = None
    labels: Ignored = None
    name: Ignored = None
    driver_opts: Annotated[Ignored, refuse("private networks are Docker's bridges: remove it")] = None
    enable_ipv6: Annotated[Ignored, refuse("private networks have IPv4 alone")] = None
    external: Annotated[Ignored, refuse("a task has no network that others have: remove it")] = None
    ipam: Annotated[Ignored, refuse(_ADDRESS, {"driver": "default"})] = None


class ComposeNamedVolume(ComposeSection):
    driver: Literal["local"] = "local"
    labels: Ignored = None
    name: Ignored = None
    driver_opts: Annotated[Ignored, refuse("a volume is a folder of the session: remove it")] = None
    external: Annotated[Ignored, refuse("a task has no volume that others have: add its files to the task")] = None
