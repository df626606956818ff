"""Finds what is left on an engine, by labels or by comparing complete inventories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from sandbox.docker import owner
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files import committed_images, shared_volumes
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import OWNER_LABEL, POOL_LABEL
from sandbox.docker.network import private_networks

_POLL_S = 0.3


async def inventory_where(engine: DockerEngine, matches: Callable[[Mapping[str, str]], bool]) -> DockerInventory:
    """List the containers, networks, shared volumes and committed images whose labels match.  Other volumes carry none.

    Raises DockerEngineError.
    """
    return DockerInventory(
        frozenset(each.id for each in await engine.containers() if matches(each.labels)),
        frozenset(each.id for each in await private_networks.list_networks(engine, {}) if matches(each.labels)),
        frozenset(each.name for each in await shared_volumes.list_volumes(engine, {}) if matches(each.labels)),
        frozenset(
            each.image for each in await committed_images.list_committed_images(engine, {}) if matches(each.labels)
        ),
    )


async def inventory_of_strangers(engine: DockerEngine) -> DockerInventory:
    """List what no pool of longshore made, the volumes of its containers included.  Raises DockerEngineError."""
    found = await inventory_where(engine, lambda labels: POOL_LABEL not in labels)
    return replace(found, volumes=await engine.volumes_of(found.containers))


async def inventory_of_others(engine: DockerEngine) -> DockerInventory:
    """List what strangers own and what belongs to a living process other than this one.  Raises DockerEngineError."""
    this = owner.owner_of_this_process()

    def is_of_another(labels: Mapping[str, str]) -> bool:
        of = labels.get(OWNER_LABEL, this)
        return POOL_LABEL not in labels or (of != this and not owner.is_proved_dead(of))

    found = await inventory_where(engine, is_of_another)
    return replace(found, volumes=found.volumes | await engine.volumes_of(found.containers))


async def wait_for_leaks(
    engine: DockerEngine,
    before: DockerInventory,
    *,
    patience_s: float = 90.0,
    count_reserved: Callable[[], Awaitable[int]] | None = None,
    list_others: Callable[[], Awaitable[DockerInventory]] | None = None,
) -> DockerInventory:
    """Return what is new and stays for ``patience_s``, within which removals in progress may finish.

    ``count_reserved`` returns how many new containers a server keeps for itself; ``list_others`` what others own.
    Raises DockerEngineError.
    """

    async def find() -> DockerInventory:
        new = (await engine.inventory()).new_since(before)
        if new and list_others is not None:
            new = new.new_since(await list_others())
        if new.containers and count_reserved is not None:
            new = replace(new, containers=frozenset(sorted(new.containers)[await count_reserved() :]))
        return new

    return await wait_until_removed(find, patience_s)


async def wait_until_removed(find: Callable[[], Awaitable[DockerInventory]], patience_s: float) -> DockerInventory:
    """Return what ``find`` still finds after ``patience_s``, or nothing as soon as it finds nothing."""
    give_up = time.monotonic() + patience_s
    while True:
        found = await find()
        if not found or time.monotonic() > give_up:
            return found
        await asyncio.sleep(_POLL_S)
