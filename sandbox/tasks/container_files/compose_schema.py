"""The part of Compose that tasks may use, as a schema. Anything else is a problem of that task, named by its key.

The agent's service (``client`` in Terminal-Bench, ``main`` in Harbor):
    ``build`` (context, dockerfile, dockerfile_inline, args, target, network), ``image``, ``environment``, ``env_file``,
    ``working_dir``, ``user``, ``hostname``, ``mem_limit``, ``cpus``, ``pids_limit``, ``deploy.resources.limits``,
    ``shm_size``, ``tmpfs``, ``ulimits``; ``cap_add`` of what every sandbox has; ``volumes``: the task's own files and
    folders (``./data:/data:ro``), named ones, and the harness's own log folders; ``entrypoint``, ``command`` and
    ``healthcheck``; ``network_mode`` ``none`` or ``bridge``.
Every other service:
    ``image`` or ``build``, ``entrypoint``, ``command``, ``user``, ``working_dir``, ``environment``, ``env_file``,
    ``hostname``, ``healthcheck.test``, ``mem_limit``, ``cpus``, ``deploy.resources.limits``, ``shm_size``, ``tmpfs``,
    ``ulimits``; ``volumes`` as above.
A named volume, or a folder of the task's own that one of them can write to, is shared by the services that have it.
Accepted without effect, because longshore manages a container's life itself: ``container_name``, ``depends_on`` (every
service starts, and those with a health check are waited for, before the agent does), ``expose``, ``init``, ``tty``,
``stdin_open``, ``restart``, ``stop_signal``, ``stop_grace_period``, ``pull_policy``, ``logging``, ``attach``,
``develop``, ``labels``, ``annotations``, ``networks`` (one private network for all), timings of the health check of a
service beside the agent's, ``version``, ``name`` and ``x-*``.
Remarked on: ``ports``, since nothing outside could reach them; ``platform``; and services with ``profiles``, which
Compose does not start.
Variables as in ``variables``; those of the harness are defined.
Not supported, for instance: other folders of the host, privileged, other capabilities, devices, extends,
secrets, ``extra_hosts``, aliases in networks, dependencies on a service that ends.
Source: the Compose specification.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_MOST_SERVICES, _MOST_VOLUMES = 100, 100
"""Of a file and of a service; a task has far fewer services yet."""


_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def _mapping(value: object) -> object:
    """Convert ``[A=b]`` to ``{A: b}``; a name alone has no value."""
    if isinstance(value, list):
        pairs = (str(each).partition("=") for each in cast("list[object]", value))
        return {key: text if equals else None for key, equals, text in pairs}
    return value


def _size(value: object) -> object:
    """Convert ``2G``, ``512m`` or bytes to whole MiB, at least 1. Docker's 0 means no limit."""
    if isinstance(value, bool) or value is None:
        return value
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)i?b?", str(value).strip().lower())
    if not found:
        raise ValueError(f"{value!r} is not a size: write 512m or 2g")
    if not float(found[1]):
        raise ValueError(f"{value!r} means no limit, but every sandbox has one: write 512m or 2g")
    return max(
        1, -(-int(float(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[found[2]]) >> 20)
    )


def _seconds(value: object) -> object:
    """Convert ``1m30s`` to seconds."""
    text = str(value)
    if not re.fullmatch(r"(\d{1,15}(\.\d+)?(us|ms|s|m|h))+|0", text):
        raise ValueError(f"{value!r} is not a duration: write 1m30s")
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(count) * units[unit] for count, unit in re.findall(r"([\d.]+)(us|ms|s|m|h)", text))


def absolute_path(value: str) -> str:
    """Return the path as Docker cleans it; an empty one names none.  Raises ValueError for one that is not absolute."""
    if value and not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path: write /{value}")
    return value and posixpath.normpath(f"/{value.lstrip('/')}")


def _host_name(value: str) -> str:
    if value and not _HOST_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a host name: it has up to 63 letters, digits, '-', '_' and '.'")
    return value


ComposeMapping = Annotated[dict[str, str | int | float | bool | None], BeforeValidator(_mapping)]
Mebibytes = Annotated[int, BeforeValidator(_size)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Cpus = Annotated[float, Field(gt=0)]
Pids = Annotated[int, Field(gt=0)]
Ignored = object


class ComposeSection(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ComposeBuild(ComposeSection):
    context: str = "."
    dockerfile: str = ""
    dockerfile_inline: str = ""
    args: ComposeMapping = Field(default_factory=dict)
    target: str = ""
    network: Literal["", "default", "host", "none"] = ""

    @model_validator(mode="after")
    def _check_dockerfile(self) -> ComposeBuild:
        if self.dockerfile and self.dockerfile_inline:
            raise ValueError("dockerfile and dockerfile_inline exclude each other: name one of them")
        return self


class ComposeLimits(ComposeSection):
    cpus: Cpus | None = None
    memory: Mebibytes | None = None
    pids: Pids | None = None


class ComposeResources(ComposeSection):
    limits: ComposeLimits = ComposeLimits()


class ComposeDeploy(ComposeSection):
    resources: ComposeResources = ComposeResources()


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


def _by_name(value: object) -> object:
    """Convert ``[a, b]`` to ``{a: {}, b: {}}``."""
    if not isinstance(value, list):
        return value
    names = cast("list[object]", value)
    return {each: dict[str, object]() for each in names} if all(isinstance(each, str) for each in names) else names


def _condition(value: object) -> object:
    if value == "service_completed_successfully":
        raise ValueError(f"{value} is not supported: a service runs beside the agent; run it in a Dockerfile instead")
    return value


class ComposeDependency(ComposeSection):
    condition: Annotated[Literal["service_started", "service_healthy"], BeforeValidator(_condition)] = "service_started"
    required: bool = True
    restart: bool = False


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_VOLUME = re.compile(r"(?:(?P<source>[^:]+):)?(?P<target>/[^:]*)(?::(?P<options>[A-Za-z,]+))?")


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


TmpfsFolder = Annotated[str, Field(pattern="^/")]


def _short_build(value: object) -> object:
    return {"context": value} if isinstance(value, str) else value


class ComposeEnvFile(ComposeSection):
    path: str
    required: bool = True
    format: Literal[""] = ""


def _env_files(value: object) -> object:
    files = _as_list(value)
    if not isinstance(files, list):
        return files
    return [{"path": each} if isinstance(each, str) else each for each in cast("list[object]", files)]


def _no_hosts(value: object) -> object:
    if value:
        raise ValueError("a name leads only to services of the file, and where the task's network lets it: remove it")
    return value


class ComposeUlimit(ComposeSection):
    soft: int
    hard: int


def _short_ulimit(value: object) -> object:
    """Convert ``1024`` to ``{soft: 1024, hard: 1024}``."""
    return {"soft": value, "hard": value} if isinstance(value, int | str) else value


class ComposeVolumeOptions(ComposeSection):
    nocopy: Literal[False] = False


class ComposeVolume(ComposeSection):
    type: Literal["bind", "volume"]
    source: str = ""
    """Path on the host, or name of a volume; empty for a volume without a name."""
    target: Annotated[str, Field(pattern="^/")]
    read_only: bool = False
    bind: Ignored = None
    volume: ComposeVolumeOptions = ComposeVolumeOptions()
    consistency: Ignored = None


class ComposeServiceNetwork(ComposeSection):
    """What a service says of a network: it has the name of the service in it, and nothing else."""


class ComposeService(ComposeSection):
    """Keys that every service may have."""

    image: str = ""
    build: Annotated[ComposeBuild, BeforeValidator(_short_build)] | None = None
    entrypoint: str | list[str] | None = None
    command: str | list[str] | None = None
    working_dir: Annotated[str, AfterValidator(absolute_path)] = ""
    user: Annotated[str, Field(coerce_numbers_to_str=True)] = ""
    environment: ComposeMapping = Field(default_factory=dict)
    env_file: Annotated[list[ComposeEnvFile], BeforeValidator(_env_files)] = Field(default_factory=list[ComposeEnvFile])
    mem_limit: Mebibytes | None = None
    cpus: Cpus | None = None
    deploy: ComposeDeploy = ComposeDeploy()
    container_name: Ignored = None
    depends_on: Annotated[dict[str, ComposeDependency], BeforeValidator(_by_name)] = Field(
        default_factory=dict[str, ComposeDependency]
    )
    expose: Ignored = None
    ports: list[Any] = Field(default_factory=list[Any])
    platform: str = ""
    profiles: list[str] = Field(default_factory=list[str])
    init: Ignored = None
    tty: Ignored = None
    stdin_open: Ignored = None
    restart: Ignored = None
    labels: Ignored = None
    annotations: Ignored = None
    attach: Ignored = None
    develop: Ignored = None
    logging: Ignored = None
    pull_policy: Ignored = None
    stop_grace_period: Ignored = None
    stop_signal: Ignored = None
    hostname: Annotated[str, AfterValidator(_host_name)] = ""
    shm_size: Mebibytes | None = None
    tmpfs: Annotated[list[TmpfsFolder], BeforeValidator(_as_list)] = Field(default_factory=list[str])
    volumes: list[Annotated[ComposeVolume, BeforeValidator(_short_volume)]] = Field(
        default_factory=list[ComposeVolume], max_length=_MOST_VOLUMES
    )
    ulimits: dict[str, Annotated[ComposeUlimit, BeforeValidator(_short_ulimit)]] = Field(
        default_factory=dict[str, ComposeUlimit]
    )
    extra_hosts: Annotated[Ignored, AfterValidator(_no_hosts)] = None
    networks: Annotated[dict[str, ComposeServiceNetwork | None], BeforeValidator(_by_name)] = Field(
        default_factory=dict[str, ComposeServiceNetwork | None]
    )
    healthcheck: ComposeHealthcheck = ComposeHealthcheck()


class ComposeAgentService(ComposeService):
    pids_limit: Pids | None = None
    cap_add: list[str] = Field(default_factory=list[str])
    network_mode: Literal["", "none", "bridge"] = ""


class ComposeSideService(ComposeService):
    """A service beside the agent's."""


class ComposeNetwork(ComposeSection):
    driver: Literal["bridge"] = "bridge"
    internal: bool = False


class ComposeNamedVolume(ComposeSection):
    driver: Literal["local"] = "local"
    name: Ignored = None
    labels: Ignored = None


class ComposeFile(ComposeSection):
    version: Ignored = None
    name: Ignored = None
    services: Annotated[dict[str, dict[str, Any]], Field(max_length=_MOST_SERVICES)]
    networks: dict[str, ComposeNetwork | None] = Field(default_factory=dict)
    volumes: dict[str, ComposeNamedVolume | None] = Field(default_factory=dict)
