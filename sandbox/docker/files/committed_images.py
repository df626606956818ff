"""Images of a container's files: the daemon commits them, and they are removed by id.

A committed image inherits the container's labels, by which the images of a dead process are found.
"""

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
from sandbox.docker.retry import RETRIED_STATUSES, DockerEngineError, call_with_retries

COMMIT_TIMEOUT_S = 180.0
"""Seconds within which even a busy healthy host copies what a sandbox may write
(:class:`sandbox.docker.container_spec.ContainerLimits`)."""
_NOT_FROZEN = frozenset({500, 503})
"""Statuses with which a busy host reports that it could not freeze the container; nothing has been copied then."""


@asynccontextmanager
async def committed_image(engine: DockerEngine, container: str, *, pause: bool) -> AsyncGenerator[str]:
    """Commit a container's files as they are now, and yield the image's id; the image is removed at the end of the
    block.

    With ``pause`` the daemon freezes the container while it copies. The image carries the container's labels. Files on
    volumes are not in it. Raises DockerEngineError.
    """

    async def call() -> str:
        handle = engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return cast("str", (await handle.commit(pause=pause, config={}))["Id"])

    async def copy() -> str:
        retried = _NOT_FROZEN if pause else frozenset[int]()
        with engine.creating():
            image = await call_with_retries(
                f"copy container {container[:12]}", call, retried, idempotent=False, within_s=COMMIT_TIMEOUT_S
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
    """Return the length of all files that the container has beyond its image's, holes included: the size of a copy.

    Raises DockerEngineError.
    """
    return int((await engine.inspect(container, size=True)).get("SizeRw") or 0)


@dataclass(frozen=True, slots=True)
class CommittedImage:
    """An image that was committed from a container."""

    image: str
    labels: Mapping[str, str]


async def list_committed_images(engine: DockerEngine, labels: Mapping[str, str]) -> tuple[CommittedImage, ...]:
    """List the committed images that carry all these labels. Raises DockerEngineError."""
    filters = {"label": [OWNER_LABEL, *(f"{key}={value}" for key, value in labels.items())]}

    async def call() -> tuple[CommittedImage, ...]:
        listed = await engine.docker.images.list(all=True, filters=filters)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(CommittedImage(each["Id"], each["Labels"] or {}) for each in listed)

    return await call_with_retries("list the copies of containers", call, RETRIED_STATUSES)


async def remove_committed_image(engine: DockerEngine, image: str) -> None:
    """Remove an image if it still exists. Raises DockerEngineError, with status 409 while a container uses it."""

    async def call() -> None:
        try:
            await engine.docker.images.delete(image, force=True, noprune=True)  # a parent may have no name either
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    await call_with_retries(f"remove image {image[:19]}", call, RETRIED_STATUSES)
