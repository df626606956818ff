"""A container's files as an image: made by the daemon, removed by its id.  What a dead process left is known by its
labels, which are the container's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import aiodocker

from sandbox import owner
from sandbox.completion import made
from sandbox.engine import DockerEngine, EngineError, retried

_BUSY = frozenset({409, 500, 502, 503})
COPY_S = 180.0
"""A healthy host copies within this what a sandbox may write (:class:`sandbox.engine.ContainerLimits`), busy or not."""
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
        return cast("str", (await handle.commit(pause=pause, config={}))["Id"])

    async def copy() -> str:
        again = _NOT_FROZEN if pause else frozenset[int]()
        with engine.making():
            image = await retried(f"copy container {container[:12]}", call, again, idempotent=False, within_s=COPY_S)
        engine.copies.add(image)
        return image

    async def forget(image: str) -> None:
        engine.copies.discard(image)
        with contextlib.suppress(EngineError):
            await remove(engine, image)

    async with made(copy, forget) as image:
        yield image


async def written_bytes(engine: DockerEngine, container: str) -> int:
    """The length of all files that the container has beyond its image's, holes included: what a copy of it takes up.

    Raises EngineError.
    """
    return int((await engine.inspect(container, size=True)).get("SizeRw") or 0)


@dataclass(frozen=True, slots=True)
class Copy:
    image: str
    labels: Mapping[str, str]


async def copies(engine: DockerEngine, labels: Mapping[str, str]) -> tuple[Copy, ...]:
    """The images of containers that carry all these labels.  Raises EngineError."""
    filters = {"label": [owner.LABEL, *(f"{key}={value}" for key, value in labels.items())]}

    async def call() -> tuple[Copy, ...]:
        listed = await engine.docker.images.list(all=True, filters=filters)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(Copy(each["Id"], each["Labels"] or {}) for each in listed)

    return await retried("list the copies of containers", call, _BUSY)


async def remove(engine: DockerEngine, image: str) -> None:
    """Raises EngineError, with status 409 while a container uses it."""

    async def call() -> None:
        try:
            await engine.docker.images.delete(image, force=True, noprune=True)  # a parent may have no name either
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    await retried(f"remove image {image[:19]}", call, _BUSY)
