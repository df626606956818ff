"""The Docker client: the calls that sandboxes need, with retries where the daemon is known to fail briefly.

Every call has a deadline.  A daemon that does not answer raises DockerEngineError; callers decide what that means for
their sandbox.  The same calls work with Docker's socket, Podman's, and TCP with TLS (:mod:`sandbox.docker.address`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self, cast
from urllib.parse import quote

import aiodocker
from aiodocker.containers import DockerContainer

from sandbox.docker.address import DockerAddress
from sandbox.docker.container_end import ContainerEndCause, container_end_cause, may_have_restarted
from sandbox.docker.container_spec import ContainerSpec, ImageConfig
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.retry import (
    BUSY_STATUSES,
    CALL_TIMEOUT_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    RETRIED_STATUSES,
    DockerEngineError,
    Json,
    call_with_retries,
    read_refusal,
)
from sandbox.docker.seccomp_profile import seccomp_option

REMOVAL_S = 300.0
DEATH_S = 5.0
"""Seconds to wait until the daemon reports a death that it announced with an out-of-memory event."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """An entry in the daemon's list of containers."""

    id: str
    labels: Mapping[str, str]
    state: str
    """``created``, ``running``, ``exited``, … as Docker names it."""


class MachineSize(NamedTuple):
    """The processors and the memory, in MiB, of the machine on which a daemon runs."""

    cpus: int
    memory_mb: int


class DockerEngine:
    """The client of one daemon: ``async with DockerEngine(url) as engine``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: aiodocker.Docker | None = None
        self._resources = ExitStack()
        self._seccomp: tuple[str, ...] | None = None
        """Security options that apply our profile, once they are known."""
        self.unanswered_at: float | None = None
        """Monotonic time of the last creating call that got no answer; see :mod:`sandbox.pool.unanswered_calls`."""
        self.committed_images: set[str] = set()
        """Ids of committed images that this process is using."""

    async def __aenter__(self) -> Self:
        self._client = DockerAddress.parse(self.url).client(CALL_TIMEOUT_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
            await client.connector.close()

    @property
    def docker(self) -> aiodocker.Docker:
        """The aiodocker client, for images, networks and files; call it through :func:`call_with_retries`."""
        if self._client is None:
            raise RuntimeError("use `async with DockerEngine(...)`")
        return self._client

    async def is_podman(self) -> bool:
        """Whether it is Podman that answers Docker's calls.  Raises DockerEngineError."""
        version: Json = await call_with_retries("ask for the engine's version", self.docker.version, RETRIED_STATUSES)
        return any(each.get("Name") == "Podman Engine" for each in version.get("Components") or ())

    def _container(self, container: str) -> DockerContainer:
        return self.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    async def _containers(self, filters: str) -> list[DockerContainer]:
        return await self.docker.containers.list(  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
            all="1", filters=filters
        )

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container without starting it.  Returns its id.  Raises DockerEngineError."""
        return await self.create_from_body(f"create a container of {spec.image}", spec.create_body())

    async def create_from_body(self, what: str, body: Json) -> str:
        """Create a container from the body of Docker's ``POST /containers/create``; ``what`` describes it in errors.

        It gets our seccomp profile unless it names one.  Returns its id.  Raises DockerEngineError.
        """
        confined = await self._confine(body)

        async def call() -> str:
            return (await self.docker.containers.create(confined)).id

        with self.creating():
            return await call_with_retries(what, call, frozenset({500, 503}), idempotent=False)

    async def _confine(self, body: Json) -> Json:
        """Add our seccomp profile to a container's body that names none."""
        host: Json = body["HostConfig"]
        options: list[str] = host.get("SecurityOpt") or []
        if any(each.startswith("seccomp=") for each in options):
            return body
        if self._seccomp is None:
            option = seccomp_option(podman=await self.is_podman(), address=DockerAddress.parse(self.url))
            self._seccomp = self._resources.enter_context(option)
        return body | {"HostConfig": host | {"SecurityOpt": [*options, *self._seccomp]}}

    @contextmanager
    def creating(self) -> Generator[None]:
        """Surround a creating call: if its answer does not come, the daemon may still create the object."""
        try:
            yield
        except DockerEngineError as error:
            if not error.status:
                self.unanswered_at = time.monotonic()
            raise

    async def start(self, container: str) -> None:
        """Start a container.  Not repeated, because the daemon removes a container whose start failed.

        Raises DockerEngineError.
        """

        async def call() -> None:
            await self._container(container).start()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        await call_with_retries(f"start container {container[:12]}", call, frozenset(), idempotent=False)

    async def remove(self, container: str) -> None:
        """Kill and remove a container, and retry until the daemon confirms that it no longer exists.

        Under load one attempt is not enough, and a removal in progress may take minutes. Raises DockerEngineError.
        """

        async def call() -> None:
            await self._container(container).delete(force=True, v=True)

        give_up, pause_s = time.monotonic() + REMOVAL_S, FIRST_PAUSE_S
        while True:
            try:
                await call_with_retries(f"remove container {container[:12]}", call, BUSY_STATUSES)
            except DockerEngineError as error:
                if error.status == 404:
                    return
                if error.status != 409 or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def containers(self, labels: Mapping[str, str] | None = None) -> tuple[ContainerInfo, ...]:
        """List the containers, in any state, that carry all these labels.  Raises DockerEngineError."""
        filters = json.dumps({"label": [f"{key}={value}" for key, value in (labels or {}).items()]})

        async def call() -> tuple[ContainerInfo, ...]:
            found = await self._containers(filters)
            return tuple(ContainerInfo(each.id, each["Labels"] or {}, each["State"]) for each in found)

        return await call_with_retries("list containers", call, RETRIED_STATUSES)

    async def inspect(self, container: str, *, size: bool = False) -> Json:
        """Return the daemon's description of a container; with ``size`` also its size, for which it reads every file's.

        Raises DockerEngineError.
        """

        async def call() -> Json:
            return await self._container(container).show(size=int(size))  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        return await call_with_retries(f"inspect container {container[:12]}", call, RETRIED_STATUSES)

    async def require_running(self, container: str) -> None:
        """Raise DockerEngineError with status 409 when the container does not run, 404 when it no longer exists."""
        if not (await self.inspect(container))["State"]["Running"]:
            raise DockerEngineError(f"container {container[:12]} does not run", 409)

    async def logs(self, container: str) -> str:
        """Return the log of a container that has a log driver. Raises DockerEngineError."""

        async def call() -> str:
            return "".join(await self._container(container).log(stdout=True, stderr=True))  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

        return await call_with_retries(f"read the log of {container[:12]}", call, RETRIED_STATUSES)

    async def inventory(self) -> DockerInventory:
        """List everything that could leak. Raises DockerEngineError."""

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

        return await call_with_retries("list what exists", call, RETRIED_STATUSES)

    async def volumes_of(self, containers: Collection[str]) -> frozenset[str]:
        """Return the names of the volumes that these containers have mounted. Raises DockerEngineError."""

        async def call() -> frozenset[str]:
            found = [each for each in await self._containers("{}") if each.id in containers]
            mounts = (mount for each in found for mount in cast("list[Json]", each["Mounts"] or ()))
            return frozenset(cast("str", mount["Name"]) for mount in mounts if mount.get("Name"))

        return await call_with_retries("list the volumes of containers", call, RETRIED_STATUSES)

    async def image_config(self, image: str) -> ImageConfig:
        """Return what an image says of its processes.  Raises DockerEngineError."""
        description: Json = json.loads(await self._read(f"images/{quote(image)}/json", f"look at the image {image}"))
        config = cast("Json", description.get("Config") or {})
        pairs = (each.partition("=") for each in cast("list[str]", config.get("Env") or []))
        env = tuple((name, value) for name, _, value in pairs)
        user, workdir = config.get("User") or "", config.get("WorkingDir") or ""
        return ImageConfig(env, user, tuple(config.get("Entrypoint") or ()), workdir)

    async def has_live_restore(self) -> bool:
        """Return whether containers survive a restart of this daemon. Raises DockerEngineError."""
        return bool((await self.info()).get("LiveRestoreEnabled"))

    async def machine(self) -> MachineSize:
        """Return what this daemon's machine has. Raises DockerEngineError."""
        info = await self.info()
        return MachineSize(int(info["NCPU"]), int(info["MemTotal"]) >> 20)

    async def info(self) -> Json:
        """Return the daemon's description of itself. Raises DockerEngineError."""
        return json.loads(await self._read("info", "ask the daemon how it is set up"))

    async def ending_cause(self, container: str, since: float) -> ContainerEndCause:
        """Return why a container ended, from the last few hundred events that the daemon remembers.

        ``since`` is in Unix seconds.  This waits a moment until the daemon notices the death.
        Raises DockerEngineError.
        """
        filters = {"container": [container], "event": ["oom", "kill", "die"]}
        give_up = time.monotonic() + DEATH_S
        while True:
            cause = container_end_cause(await self._events(container, since, filters))
            if cause.death_seen:
                return cause
            if time.monotonic() > give_up:
                everything = await self._events(container, 0.0, {})
                return replace(cause, daemon_may_have_restarted=may_have_restarted(everything, since))
            await asyncio.sleep(LONGEST_PAUSE_S)

    async def _events(self, container: str, since: float, filters: Json) -> list[Json]:
        """Return the remembered events since a Unix time, to find out why ``container`` ended."""
        params = {"since": f"{since:.3f}", "until": f"{time.time():.3f}", "filters": json.dumps(filters)}
        answer = await self._read("events", f"ask the daemon what happened to {container[:12]}", params)
        return [cast("Json", json.loads(line)) for line in answer.splitlines() if line.strip()]

    async def _read(self, path: str, what: str, params: Mapping[str, str] | None = None) -> str:
        """Return the daemon's answer to ``GET /path``; ``what`` names the call in errors.  Raises DockerEngineError."""

        async def call() -> str:
            docker = self.docker
            async with docker.session.get(f"{docker.docker_host}/{path}", params=params) as response:
                text = await response.text()
            if response.status >= 400:
                raise DockerEngineError(read_refusal(text), response.status)
            return text

        return await call_with_retries(what, call, RETRIED_STATUSES)
