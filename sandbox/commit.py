"""A container's files as an image: made by the daemon, removed by its id."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import aiodocker

from sandbox.completion import made
from sandbox.engine import DockerEngine, EngineError, retried

_BUSY = frozenset({409, 500, 502, 503})
_NOT_FROZEN = frozenset({500, 503})
"""A busy host may fail to freeze a container; then nothing has been copied."""


@asynccontextmanager
async def committed(engine: DockerEngine, container: str, *, pause: bool) -> AsyncGenerator[str]:
    """Id of an image of the container's files as they are now; removed at the end.  Raises EngineError.

    ``pause``: the daemon holds the container still while it copies.  The image carries the container's labels.  What
    lies on volumes is not in it.
    """

    async def call() -> str:
        handle = engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return cast("str", (await handle.commit(pause=pause))["Id"])

    async def copy() -> str:
        again = _NOT_FROZEN if pause else frozenset[int]()
        return await retried(f"copy container {container[:12]}", call, again, idempotent=False)

    async def forget(image: str) -> None:
        with contextlib.suppress(EngineError):
            await _remove(engine, image)

    async with made(copy, forget) as image:
        yield image


async def _remove(engine: DockerEngine, image: str) -> None:
    async def call() -> None:
        try:
            await engine.docker.images.delete(image, force=True, noprune=True)  # a parent may have no name either
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    await retried(f"remove image {image[:19]}", call, _BUSY)
