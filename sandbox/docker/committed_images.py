"""A container's files as an image: made by the daemon, removed by its id.  What a dead process left is known by its
labels, which are the container's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import aiodocker

from protocol.processes.cancellation import temporary_resource
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.retry import DockerEngineError, call_with_retries

_BUSY = frozenset({409, 500, 502, 503})
COMMIT_TIMEOUT_S = 180.0
"""A healthy host copies within this what a sandbox may write (:class:`sandbox.docker.container_spec.ContainerLimits`), busy or not."""
_NOT_FROZEN = frozenset({500, 503})
"""A busy host may fail to freeze a container; then nothing has been copied."""


@asynccontextmanager
async def committed_image(engine: DockerEngine, container: str, *, pause: bool) -> AsyncGenerator[str]:
    """Id of an image of the container's files as they are now; removed at the end.  Raises EngineError.

    ``pause``: the daemon holds the container still while it copies.  The image carries the container's labels.  What
    lies on volumes is not in it.
    """

    async def call() -> str:
        handle = engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return cast("str", (await handle.commit(pause=pause, config={}))["Id"])

    async def copy() -> str:
        again = _NOT_FROZEN if pause else frozenset[int]()
        with engine.creating():
            image = await call_with_retries(
                f"copy container {container[:12]}", call, again, idempotent=False, within_s=COMMIT_TIMEOUT_S
            )
        engine.committed_images.add(image)
        return image

    async def forget(image: str) -> None:
        engine.committed_images.discard(image)
        with contextlib.suppress(DockerEngineError):
            await remove_committed_image(engine, image)

    async with temporary_resource(copy, forget) as image:
        yield image


async def writable_layer_bytes(engine: DockerEngine, container: str) -> int:
    """The length of all files that the container has beyond its image's, holes included: what a copy of it takes up.

    Raises EngineError.
    """
    return int((await engine.inspect(container, size=True)).get("SizeRw") or 0)


@dataclass(frozen=True, slots=True)
class CommittedImage:
    image: str
    labels: Mapping[str, str]


async def list_committed_images(engine: DockerEngine, labels: Mapping[str, str]) -> tuple[CommittedImage, ...]:
    """The images of containers that carry all these labels.  Raises EngineError."""
    filters = {"label": [OWNER_LABEL, *(f"{key}={value}" for key, value in labels.items())]}

    async def call() -> tuple[CommittedImage, ...]:
        listed = await engine.docker.images.list(all=True, filters=filters)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(CommittedImage(each["Id"], each["Labels"] or {}) for each in listed)

    return await call_with_retries("list the copies of containers", call, _BUSY)


async def remove_committed_image(engine: DockerEngine, image: str) -> None:
    """Raises EngineError, with status 409 while a container uses it."""

    async def call() -> None:
        try:
            await engine.docker.images.delete(image, force=True, noprune=True)  # a parent may have no name either
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    await call_with_retries(f"remove image {image[:19]}", call, _BUSY)
