"""Volumes that the containers of one session share.

They carry the labels of the session's other resources, by which those of a dead process are found
(:mod:`sandbox.pool.orphans`).  The daemon fills an empty one from the image of a container when it creates that.
"""

from __future__ import annotations

import asyncio
import http
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from aiodocker.volumes import DockerVolume

from protocol.processes.cancellation import temporary_resource
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, Json, call_with_retries

_TEARDOWN_S = 30.0
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class VolumeInfo:
    """An entry in the daemon's list of volumes."""

    name: str
    labels: Mapping[str, str]


async def list_volumes(engine: DockerEngine, labels: Mapping[str, str]) -> tuple[VolumeInfo, ...]:
    """List the shared volumes that carry all these labels. Raises DockerEngineError."""
    filters = {"label": [OWNER_LABEL, *(f"{key}={value}" for key, value in labels.items())]}

    async def call() -> tuple[VolumeInfo, ...]:
        listed = cast("Json", await engine.docker.volumes.list(filters=filters))  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(VolumeInfo(each["Name"], each["Labels"]) for each in listed["Volumes"] or ())

    return await call_with_retries("list the volumes", call, BUSY_STATUSES)


@asynccontextmanager
async def temporary_volume(engine: DockerEngine, name: str, labels: Mapping[str, str]) -> AsyncGenerator[None]:
    """Create an empty volume, and remove it at the end of the block. Raises DockerEngineError."""

    async def create() -> None:
        await engine.docker.volumes.create({"Name": name, "Labels": dict(labels)})  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    async with temporary_resource(
        lambda: call_with_retries(f"create the volume {name}", create, BUSY_STATUSES),
        lambda _: remove_volume(engine, name),
    ):
        yield


async def remove_volume(engine: DockerEngine, name: str, wait_s: float = _TEARDOWN_S) -> bool:
    """Remove a volume if it still exists; retry while an ended container that has it is still being removed.

    Returns False when the volume is in use and ``wait_s`` is 0. Raises DockerEngineError.
    """

    async def call() -> None:
        await DockerVolume(engine.docker, name).delete()

    give_up = time.monotonic() + wait_s
    while True:
        try:
            await call_with_retries(f"remove the volume {name}", call, BUSY_STATUSES)
        except DockerEngineError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return True
            if error.status != http.HTTPStatus.CONFLICT:
                raise
            if time.monotonic() >= give_up:
                if not wait_s:
                    return False
                raise
        else:
            return True
        await asyncio.sleep(_LOOK_AGAIN_S)
