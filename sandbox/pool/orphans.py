"""Finds orphans by their labels, and removes them: containers, and committed images, volumes and private networks
without a user.

A started container ends by itself at its deadline. A container that was created but never started has no deadline, and
neither has a committed image, a volume or a network. Three callers decide in their own way what is an orphan: one by a
dead owner or a past expiry (:func:`remove_abandoned`), a pool with a name of its own by the sessions that it holds
(:meth:`sandbox.pool.sandbox_pool.SandboxPool.remove_orphans`), and a pool whose daemon did not answer by age
(:mod:`sandbox.pool.unanswered_calls`).
"""

from __future__ import annotations

import http
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.docker import owner
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files import committed_images, shared_volumes
from sandbox.docker.labels import EXPIRES_LABEL, OWNER_LABEL
from sandbox.docker.network import private_networks
from sandbox.docker.retry import DockerEngineError

_EXPIRY_GRACE_S = 300.0


class ResourceKind(StrEnum):
    """Kind of a Docker resource. Removal goes in this order: of these kinds, only a container in use can be removed."""

    CONTAINER = "container"
    IMAGE = "image"
    """An image committed from a container; images that were built or pulled are never touched."""
    VOLUME = "volume"
    """A volume that a session's containers share."""
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class LabelledResource:
    """A container, committed image, volume or network that carries longshore's labels."""

    kind: ResourceKind
    name: str
    """Id of a container or image; name of a volume or network."""
    labels: Mapping[str, str] = field(hash=False)
    state: str = ""
    """A container's state as Docker names it: ``created``, ``running``, …"""


async def list_resources(
    engine: DockerEngine, labels: Mapping[str, str], kinds: tuple[ResourceKind, ...] = tuple(ResourceKind)
) -> AsyncGenerator[LabelledResource]:
    """Yield the resources that carry all of ``labels``, one kind after the other.

    Raises DockerEngineError.
    """
    if ResourceKind.CONTAINER in kinds:
        for each in await engine.containers(labels):
            yield LabelledResource(ResourceKind.CONTAINER, each.id, each.labels, each.state)
    if ResourceKind.IMAGE in kinds:
        for image in await committed_images.list_committed_images(engine, labels):
            yield LabelledResource(ResourceKind.IMAGE, image.image, image.labels)
    if ResourceKind.VOLUME in kinds:
        for volume in await shared_volumes.list_volumes(engine, labels):
            yield LabelledResource(ResourceKind.VOLUME, volume.name, volume.labels)
    if ResourceKind.NETWORK in kinds:
        for network in await private_networks.list_networks(engine, labels):
            yield LabelledResource(ResourceKind.NETWORK, network.name, network.labels)


async def remove_resource(engine: DockerEngine, resource: LabelledResource) -> bool:
    """Remove a resource. Returns False for one that is still in use and no container. Raises DockerEngineError."""
    match resource.kind:
        case ResourceKind.CONTAINER:
            await engine.remove(resource.name)
            return True
        case ResourceKind.VOLUME:
            return await shared_volumes.remove_volume(engine, resource.name, wait_s=0.0)
        case ResourceKind.NETWORK:
            return await private_networks.remove_network(engine, resource.name, wait_s=0.0)
        case ResourceKind.IMAGE:
            try:
                await committed_images.remove_committed_image(engine, resource.name)
            except DockerEngineError as error:
                if error.status == http.HTTPStatus.CONFLICT:
                    return False
                raise
            return True


async def remove_orphans(
    engine: DockerEngine, labels: Mapping[str, str], is_orphan: Callable[[LabelledResource], bool]
) -> int:
    """Remove the resources with these labels for which ``is_orphan`` holds.

    Returns how many were removed.  Raises DockerEngineError.
    """
    removed = 0
    async for each in list_resources(engine, labels):
        if is_orphan(each):
            removed += await remove_resource(engine, each)
    return removed


async def remove_abandoned(engine: DockerEngine, label: str, value: str, now: Callable[[], float] = time.time) -> int:
    """Remove what carries ``label=value`` and whose owner is proved dead or that has long expired.

    Returns how many were removed.  Raises DockerEngineError.
    """
    return await remove_orphans(engine, {label: value}, lambda each: _is_orphan(each.labels, now()))


def _is_orphan(labels: Mapping[str, str], now: float) -> bool:
    expires = labels.get(EXPIRES_LABEL, "")
    expired = expires.isdigit() and int(expires) + _EXPIRY_GRACE_S < now
    return expired or owner.is_proved_dead(labels.get(OWNER_LABEL, ""))
