"""What grading asks of the Docker daemon: freeze, copy, look, carry.  Every call has a deadline (:func:`retried`).

Never ``kill`` on a paused container: it resumes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, cast

import aiodocker
from aiodocker.containers import DockerContainer

from sandbox.engine import DockerEngine, EngineError, retried

_AGAIN = frozenset({500, 502, 503})
_CHUNK_BYTES = 256 << 10


class TooLargeError(Exception):
    """An archive is larger than what it may be."""


def _container(engine: DockerEngine, container: str) -> DockerContainer:
    return engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker


@asynccontextmanager
async def paused(engine: DockerEngine, container: str) -> AsyncGenerator[None]:
    """Nothing in the container runs meanwhile.

    Raises EngineError: runc gives up when processes start faster than it freezes them, on cgroup v1 and a busy host.
    """
    handle = _container(engine, container)
    pausing = asyncio.ensure_future(retried(f"pause container {container[:12]}", handle.pause, _AGAIN))
    try:
        await asyncio.shield(pausing)
        yield
    finally:
        await asyncio.shield(_thaw(engine, container, pausing))


async def _thaw(engine: DockerEngine, container: str, pausing: asyncio.Future[None]) -> None:
    """The daemon finishes a pause whose client has gone, so it is waited for."""

    async def call() -> None:
        try:
            await _container(engine, container).unpause()
        except aiodocker.DockerError as error:
            if error.status != 404 and "is not paused" not in error.message and "is not running" not in error.message:
                raise

    with contextlib.suppress(EngineError):
        await pausing
    await retried(f"unpause container {container[:12]}", call, _AGAIN)


@asynccontextmanager
async def committed(engine: DockerEngine, container: str) -> AsyncGenerator[str]:
    """Id of an image of the container's files as they are now; removed by that id at the end.  Raises EngineError.

    The image carries the container's labels.  What lies on volumes is not in it.
    """

    async def call() -> str:
        made = await _container(engine, container).commit(pause=False)
        return cast("str", made["Id"])

    making = asyncio.ensure_future(retried(f"copy container {container[:12]}", call, frozenset(), idempotent=False))
    try:
        yield await asyncio.shield(making)
    finally:
        await asyncio.shield(_forget(engine, making))


async def _forget(engine: DockerEngine, making: asyncio.Future[str]) -> None:
    """The daemon finishes a copy whose client has gone, so a cancelled one is seen to its end and removed."""
    with contextlib.suppress(EngineError):
        await _remove_image(engine, await making)


async def _remove_image(engine: DockerEngine, image: str) -> None:
    async def call() -> None:
        try:
            await engine.docker.images.delete(image, force=True, noprune=True)  # a parent may have no name either
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    await retried(f"remove image {image[:19]}", call, _AGAIN | {409})


async def pids_of(engine: DockerEngine, container: str) -> tuple[int, ...]:
    """The container's processes by their number on the daemon's host.  Raises EngineError."""
    shown = await retried(f"look into container {container[:12]}", _container(engine, container).top, _AGAIN)
    column = shown["Titles"].index("PID")
    return tuple(int(row[column]) for row in shown["Processes"])


async def main_pid(engine: DockerEngine, container: str) -> int:
    """PID 1's number on the daemon's host; 0 when it does not run.  Raises EngineError."""

    async def call() -> dict[str, Any]:
        return await _container(engine, container).show()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    shown = await retried(f"inspect container {container[:12]}", call, _AGAIN)
    return int(shown["State"]["Pid"])


async def read_archive(engine: DockerEngine, container: str, path: str, into: IO[bytes], most: int) -> bool:
    """Write a tar of ``path`` to ``into``.  Returns whether the path exists.  Raises TooLargeError, EngineError."""

    async def call() -> bool:
        docker = engine.docker
        query = docker._query  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the public call reads it all into memory
        try:
            async with query(f"containers/{container}/archive", params={"path": path}) as response:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    if into.tell() + len(chunk) > most:
                        raise TooLargeError
                    into.write(chunk)
        except aiodocker.DockerError as error:
            if error.status == 404:
                return False
            raise
        return True

    return await retried(f"read {path} from container {container[:12]}", call, frozenset(), idempotent=False)


async def write_archive(engine: DockerEngine, container: str, folder: str, tar: Path) -> None:
    """Unpack a tar under an existing ``folder``.  Raises EngineError."""

    async def call() -> None:
        with tar.open("rb") as source:
            await _container(engine, container).put_archive(  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
                folder, source
            )

    await retried(f"write {folder} in container {container[:12]}", call, frozenset(), idempotent=False)
