"""Calls of the Docker daemon for grading: freeze, inspect, pack and unpack. Every call has a deadline.

Never ``kill`` a paused container: that resumes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import IO, Any

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer

from protocol.processes.cancellation import temporary_resource
from sandbox.docker.cgroups import cgroup_procs
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, call_with_retries

ARCHIVE_TIMEOUT_S = 180.0
"""Maximum seconds in which even a busy healthy host packs or unpacks the largest artifacts."""
_CHUNK_BYTES = 256 << 10


class ArchiveTooLargeError(Exception):
    """The archive is larger than allowed."""


def _container(engine: DockerEngine, container: str) -> DockerContainer:
    return engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker


@asynccontextmanager
async def pause_container(engine: DockerEngine, container: str) -> AsyncGenerator[None]:
    """Pause the container until the block ends.

    Raises DockerEngineError: on cgroup v1 and a busy host, runc gives up if processes start faster than it freezes
    them.
    """

    async def freeze() -> None:
        try:
            await call_with_retries(
                f"pause container {container[:12]}", _container(engine, container).pause, BUSY_STATUSES
            )
        except DockerEngineError:
            await thaw(None)  # it may have been frozen nevertheless
            raise

    async def call() -> None:
        try:
            await _container(engine, container).unpause()
        except aiodocker.DockerError as error:
            if error.status != 404 and "is not paused" not in error.message and "is not running" not in error.message:
                raise

    async def thaw(_: None) -> None:
        await call_with_retries(f"unpause container {container[:12]}", call, BUSY_STATUSES)

    async with temporary_resource(freeze, thaw):
        yield


async def container_pids(engine: DockerEngine, container: str) -> tuple[int, ...]:
    """Return the PIDs of the container's processes on the daemon's host. Raises DockerEngineError."""
    listing = await call_with_retries(
        f"look into container {container[:12]}", _container(engine, container).top, BUSY_STATUSES
    )
    if not listing:  # Podman's answer when it does not know
        return await _pids_of_cgroup(engine, container)
    column = listing["Titles"].index("PID")
    return tuple(int(row[column]) for row in listing["Processes"])


async def _pids_of_cgroup(engine: DockerEngine, container: str) -> tuple[int, ...]:
    members = cgroup_procs(await main_pid(engine, container), container)
    if members is None:
        raise DockerEngineError(
            f"neither the engine nor this host can list the processes of container {container[:12]}"
        )
    return tuple(map(int, (await asyncio.to_thread(members.read_text)).split()))


async def main_pid(engine: DockerEngine, container: str) -> int:
    """Return PID 1's PID on the daemon's host; 0 if it does not run. Raises DockerEngineError."""

    async def call() -> dict[str, Any]:
        return await _container(engine, container).show()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    description = await call_with_retries(f"inspect container {container[:12]}", call, BUSY_STATUSES)
    return int(description["State"]["Pid"])


async def read_archive(engine: DockerEngine, container: str, path: str, into: IO[bytes], most: int) -> bool:
    """Write a tar of ``path`` to ``into``. Returns whether the path exists.

    The daemon packs it, not PID 1 (:func:`sandbox.session.files.read_tree`), because the container may be frozen.
    Raises ArchiveTooLargeError, DockerEngineError.
    """

    async def call() -> bool:
        try:
            async with _query(engine, "GET", container, path) as response:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    if into.tell() + len(chunk) > most:
                        raise ArchiveTooLargeError
                    into.write(chunk)
        except aiodocker.DockerError as error:
            if error.status == 404 and "No such container" not in error.message:
                return False
            raise
        return True

    what = f"read {path} from container {container[:12]}"
    return await call_with_retries(what, call, frozenset(), idempotent=False, within_s=ARCHIVE_TIMEOUT_S)


async def write_archive(engine: DockerEngine, container: str, folder: str, tar: Path) -> None:
    """Unpack a tar in an existing ``folder``.  Raises DockerEngineError."""

    async def call() -> None:
        with tar.open("rb") as source:
            async with _query(engine, "PUT", container, folder, source) as response:
                await response.read()

    await call_with_retries(
        f"write {folder} in container {container[:12]}", call, frozenset(), idempotent=False, within_s=ARCHIVE_TIMEOUT_S
    )


def _query(
    engine: DockerEngine, method: str, container: str, path: str, data: IO[bytes] | None = None
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    query = engine.docker._query  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the public calls end after a minute, and read all into memory
    where, headers = f"containers/{container}/archive", {"Content-Type": "application/x-tar"}
    return query(where, method, params={"path": path}, data=data, headers=headers, timeout=None)
