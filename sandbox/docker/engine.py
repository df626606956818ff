"""The Docker engine: the calls that sandboxes need, retried over the daemon's known traps, and nothing else.

Every call has a deadline.  A daemon that cannot be asked is an ``EngineError``; callers say what that means for their
sandbox.  The same calls serve Docker's socket, Podman's and TCP with TLS (:mod:`sandbox.docker.address`).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer

from protocol.errors import InfraError, UserError
from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker.address import DockerAddress
from sandbox.docker.labels import OWNER_LABEL

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

PRIVATE_DNS: Json = {"Dns": ["127.0.0.254"], "DnsOptions": ["timeout:1", "attempts:1"]}
"""For a private network, where Docker's own resolver knows the neighbours and must not ask the world: nobody answers at
that address, and a name that is no neighbour's is given up within seconds."""

_PROCESSES = 4096
"""Of one user; the cgroup's limit on pids is lower and counts.  Written out for the same reason as the open files."""
_SIGNALS = 4096
"""That wait, and timers.  The kernel counts those of all root together, in every container and on the host, which has a
higher limit than this."""

_CALL_S = 60.0
_REMOVAL_S = 300.0
_ATTEMPTS = 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_OOM_S = 3.0
"""Between a container's last memory and its death."""
_DEATH_S = 5.0
"""What the daemon has not noticed by then has not happened."""
_RETRIED_STATUS = frozenset({409, 500, 502, 503})
_CUT = 900
"""aiodocker's word for a connection that cannot be made, or is cut."""


class DockerEngineError(InfraError):
    """The Docker daemon refused, failed or could not be asked.  ``status`` is its HTTP status, 0 for no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def networking_config(network: str, aliases: tuple[str, ...]) -> Json:
    """The ``NetworkingConfig`` of a container on one network, under these names."""
    return {"EndpointsConfig": {network: {"Aliases": list(aliases)}}} if aliases else {}


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    memory_bytes: int = 256 << 20
    pids: int = 128
    cpus: float = 1.0
    file_bytes: int = 2 << 30
    """Largest size of one file."""
    disk_bytes: int = 2 << 30
    """Of all that is written, where the host can hold it to that (:mod:`sandbox.pool.disk_watch`)."""
    open_files: int = 16384
    """Of one process.  Written out: Podman asks for a million by itself, which a nested machine may not give."""

    def __post_init__(self) -> None:
        if not all(0 < limit < math.inf for limit in astuple(self)):
            raise UserError(f"a limit of a sandbox is above 0 and finite, and 0 would be none to Docker: {self}")


def ulimits(limits: ContainerLimits) -> list[Json]:
    """Of each process, in the daemon's words."""
    most = {
        "fsize": limits.file_bytes,
        "core": 0,
        "nofile": limits.open_files,
        "nproc": _PROCESSES,
        "sigpending": _SIGNALS,
    }
    return [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in most.items()]


def storage_options(limits: ContainerLimits) -> Json:
    """The storage driver's option for the disk limit, where it has one."""
    return {"size": str(limits.disk_bytes)}


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One sandbox container: few capabilities, removed by the daemon when PID 1 ends."""

    image: str
    toolchain: Path
    """Folder on the daemon's host, mounted read-only at ``/.sbx``."""
    labels: Mapping[str, str]
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: ContainerLimits = ContainerLimits()
    hostname: str = "sandbox"
    auto_remove: bool = True
    """The daemon removes what has ended.  A daemon with live-restore kills such containers when it restarts: there the
    session removes its own."""
    disk_quota: bool = False
    """Whether the daemon's storage driver holds the disk limit."""
    disk_loop: bool = False
    """It writes to a file system of its own (:mod:`sandbox.docker.loop_disk`)."""
    network: str = "none"
    """Docker's network mode: ``none``, a network's name, or ``container:ID`` for the network of that container."""
    aliases: tuple[str, ...] = ()
    """Its names on that network."""
    resolves_public_names: bool = False
    """Names of the world are looked up, not only the neighbours'."""
    capabilities: tuple[str, ...] = BASE_CAPABILITIES
    committed_from: str = ""
    """The task's image, where ``image`` is a copy of a sandbox: what the daemon reads of that is an agent's
    (:mod:`sandbox.docker.user_files`)."""

    @property
    def task_image(self) -> str:
        """The task's image."""
        return self.committed_from or self.image

    def create_body(self) -> Json:
        """The body of Docker's ``POST /containers/create``."""
        limits = self.limits
        joined = self.network.startswith("container:")
        return {
            "Image": self.image,
            "Entrypoint": [],
            "Cmd": list(self.command),
            "Env": [f"{key}={value}" for key, value in self.env.items()],
            "WorkingDir": "/",
            "User": "0:0",
            "Hostname": "" if joined else self.hostname,
            "Labels": dict(self.labels),
            "Healthcheck": {"Test": ["NONE"]},  # the image's would run in the container, also while tests do
            "NetworkDisabled": self.network == "none",
            "NetworkingConfig": {} if joined else networking_config(self.network, self.aliases),
            "OpenStdin": True,
            "StdinOnce": False,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "HostConfig": {
                "AutoRemove": self.auto_remove,
                "Init": False,
                "NetworkMode": self.network,
                **({} if joined or self.network == "none" or self.resolves_public_names else PRIVATE_DNS),
                "LogConfig": {"Type": "none", "Config": {}},
                "CapDrop": ["ALL"],
                "CapAdd": list(self.capabilities),
                "SecurityOpt": ["no-new-privileges"],
                "StorageOpt": storage_options(limits) if self.disk_quota else {},
                "PidsLimit": limits.pids,
                "Memory": limits.memory_bytes,
                "MemorySwap": limits.memory_bytes,
                "NanoCpus": int(limits.cpus * 1e9),
                "Ulimits": ulimits(limits),
                "Mounts": [{"Type": "bind", "Source": str(self.toolchain), "Target": "/.sbx", "ReadOnly": True}],
            },
        }


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    id: str
    labels: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True)
class ContainerEndCause:
    """What the daemon saw happen to a container: why a PID 1 that did not say goodbye is gone."""

    out_of_memory: bool
    """It died of it.  What a process beside PID 1 was killed for earlier does not count."""
    killed_by_api: bool
    """Somebody, not the agent, asked the daemon to kill or remove it."""


@dataclass(frozen=True, slots=True)
class DockerInventory:
    """Everything that could leak.  Two of them, before and after, are the proof that nothing did."""

    containers: frozenset[str]
    networks: frozenset[str]
    volumes: frozenset[str]
    images: frozenset[str] = frozenset()
    """Copies of sandboxes only: of other images, anybody may make some meanwhile."""

    def new_since(self, before: DockerInventory) -> DockerInventory:
        """What is here and was not there ``before``."""
        return DockerInventory(
            self.containers - before.containers,
            self.networks - before.networks,
            self.volumes - before.volumes,
            self.images - before.images,
        )

    def __len__(self) -> int:
        return len(self.containers) + len(self.networks) + len(self.volumes) + len(self.images)


def container_end_cause(events: Iterable[Json]) -> ContainerEndCause:
    """From the daemon's events on one container.  Pure."""
    known = tuple(events)
    times = _times(known)
    out_of_memory = any(abs(oom - died) <= _OOM_S for oom in times["oom"] for died in times["die"])
    return ContainerEndCause(out_of_memory, any(each.get("Action") == "kill" for each in known))


def _times(events: Iterable[Json]) -> defaultdict[str, list[float]]:
    """Action → when, in Unix seconds."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in events:
        found[str(each.get("Action"))].append(float(each.get("timeNano", 0)) / 1e9 or float(each.get("time", 0)))
    return found


class DockerEngine:
    """One daemon.  ``async with DockerEngine(url) as engine``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: aiodocker.Docker | None = None
        self.unanswered_at: float | None = None
        """When a call that makes something went without an answer last, on the monotonic clock; see
        :mod:`sandbox.pool.orphans`."""
        self.committed_images: set[str] = set()
        """Images of containers that somebody here uses."""

    async def __aenter__(self) -> Self:
        self._client = DockerAddress.parse(self.url).client(_CALL_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
            await client.connector.close()

    @property
    def docker(self) -> aiodocker.Docker:
        """The client itself, for images, networks and files; called through :func:`retried`."""
        if self._client is None:
            raise RuntimeError("use `async with DockerEngine(...)`")
        return self._client

    def _container(self, container: str) -> DockerContainer:
        return self.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    async def _containers(self, filters: str) -> list[DockerContainer]:
        return await self.docker.containers.list(  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
            all="1", filters=filters
        )

    async def create(self, spec: ContainerSpec) -> str:
        """Id of a new container that does not run yet."""
        return await self.create_from_body(f"create a container of {spec.image}", spec.create_body())

    async def create_from_body(self, what: str, body: Json) -> str:
        """The same for a container that is no sandbox, from the body of Docker's ``POST /containers/create``."""

        async def call() -> str:
            return (await self.docker.containers.create(body)).id

        with self.creating():
            return await call_with_retries(what, call, frozenset({500, 503}), idempotent=False)

    @contextmanager
    def creating(self) -> Generator[None]:
        """A call that makes something: where its answer does not come, the daemon may make it all the same."""
        try:
            yield
        except DockerEngineError as error:
            if not error.status:
                self.unanswered_at = time.monotonic()
            raise

    async def start(self, container: str) -> None:
        """Not tried twice: the daemon removes a container whose start failed."""

        async def call() -> None:
            await self._container(container).start()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        await call_with_retries(f"start container {container[:12]}", call, frozenset(), idempotent=False)

    async def remove(self, container: str) -> None:
        """Kill and remove, until the daemon says that it is gone: under load one try is not enough, and a removal that
        is under way may take long.  Raises EngineError."""

        async def call() -> None:
            await self._container(container).delete(force=True, v=True)

        give_up, pause_s = time.monotonic() + _REMOVAL_S, _FIRST_PAUSE_S
        while True:
            try:
                await call_with_retries(f"remove container {container[:12]}", call, _RETRIED_STATUS - {409})
            except DockerEngineError as error:
                if error.status == 404:
                    return
                if error.status != 409 or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def containers(self, labels: Mapping[str, str] | None = None) -> tuple[ContainerInfo, ...]:
        """Containers in any state that carry all these labels."""
        filters = json.dumps({"label": [f"{key}={value}" for key, value in (labels or {}).items()]})

        async def call() -> tuple[ContainerInfo, ...]:
            found = await self._containers(filters)
            return tuple(ContainerInfo(each.id, each["Labels"] or {}, each["State"]) for each in found)

        return await call_with_retries("list containers", call, _RETRIED_STATUS)

    async def inspect(self, container: str, *, size: bool = False) -> Json:
        """All that the daemon says of a container; ``size``: also of how much it holds, for which it looks at every
        file."""

        async def call() -> Json:
            return await self._container(container).show(size=int(size))  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        return await call_with_retries(f"inspect container {container[:12]}", call, _RETRIED_STATUS)

    async def require_running(self, container: str) -> None:
        """Raises EngineError, as for one that is gone, when it does not run."""
        if not (await self.inspect(container))["State"]["Running"]:
            raise DockerEngineError(f"container {container[:12]} does not run", 409)

    async def logs(self, container: str) -> str:
        """What a container that has a log driver wrote."""

        async def call() -> str:
            return "".join(await self._container(container).log(stdout=True, stderr=True))  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        return await call_with_retries(f"read the log of {container[:12]}", call, _RETRIED_STATUS)

    async def inventory(self) -> DockerInventory:
        async def call() -> DockerInventory:
            containers = await self._containers("{}")
            networks = await self.docker.networks.list()
            volumes = cast("Json", await self.docker.volumes.list())  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
            images = await self.docker.images.list(all=True, filters={"label": [OWNER_LABEL]})  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
            return DockerInventory(
                frozenset(each.id for each in containers),
                frozenset(cast("str", each["Id"]) for each in networks),
                frozenset(cast("str", each["Name"]) for each in volumes["Volumes"] or ()),
                frozenset(cast("str", each["Id"]) for each in images),
            )

        return await call_with_retries("list what exists", call, _RETRIED_STATUS)

    async def image_environment(self, image: str) -> dict[str, str]:
        """What an image sets for every process.  Raises EngineError."""
        said: Json = json.loads(await self._read(f"images/{quote(image)}/json", f"look at the image {image}"))
        made = cast("Json", said.get("Config") or {})
        pairs = (each.partition("=") for each in cast("list[str]", made.get("Env") or []))
        return {name: value for name, _, value in pairs}

    async def has_live_restore(self) -> bool:
        """Whether containers outlive this daemon.  Raises EngineError."""

        return bool((await self.info()).get("LiveRestoreEnabled"))

    async def info(self) -> Json:
        """What the daemon says of itself.  Raises EngineError."""
        return json.loads(await self._read("info", "ask the daemon how it is set up"))

    async def ending_cause(self, container: str, since: float) -> ContainerEndCause:
        """From the daemon's own memory of the last few hundred events; ``since`` in Unix seconds.  An end that the
        daemon has not noticed yet is waited for where it matters."""
        filters = json.dumps({"container": [container], "event": ["oom", "kill", "die"]})
        give_up = time.monotonic() + _DEATH_S
        while True:
            params = {"since": f"{since:.3f}", "until": f"{time.time():.3f}", "filters": filters}
            said = await self._read("events", f"ask what happened to {container[:12]}", params)
            events = [cast("Json", json.loads(line)) for line in said.splitlines() if line.strip()]
            times = _times(events)
            if times["die"] or not times["oom"] or time.monotonic() > give_up:
                return container_end_cause(events)
            await asyncio.sleep(_LONGEST_PAUSE_S)

    async def _read(self, path: str, what: str, params: Mapping[str, str] | None = None) -> str:
        """The daemon's answer to ``GET /path``, for ``what``.  Raises EngineError."""

        async def call() -> str:
            docker = self.docker
            async with docker.session.get(f"{docker.docker_host}/{path}", params=params) as response:
                said = await response.text()
            if response.status >= 400:
                raise DockerEngineError(said.strip(), response.status)
            return said

        return await call_with_retries(what, call, _RETRIED_STATUS)


async def call_with_retries(
    what: str,
    call: Callable[[], Awaitable[T]],
    statuses: frozenset[int],
    *,
    idempotent: bool = True,
    within_s: float = _CALL_S,
) -> T:
    """Call again on these HTTP statuses and, where a call may run twice, on a cut connection.  ``within_s`` is for each
    call; beyond a minute the client's own limit must be lifted too.  Raises EngineError."""
    for attempt in range(_ATTEMPTS):
        try:
            async with asyncio.timeout(within_s):
                return await call()
        except (aiodocker.DockerError, DockerEngineError) as error:
            cut = error.status == _CUT
            again = idempotent if cut else error.status in statuses
            if not again or attempt == _ATTEMPTS - 1:
                raise DockerEngineError(f"could not {what}: {error}", 0 if cut else error.status) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not idempotent or attempt == _ATTEMPTS - 1:
                raise DockerEngineError(f"could not {what}: {type(error).__name__} {error}") from error
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            raise DockerEngineError(f"could not {what}: {type(error).__name__} {error}") from error
        await asyncio.sleep(_FIRST_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")
