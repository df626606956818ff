"""Detects leaks: compares complete inventories of an engine, without trusting labels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from sandbox.docker.engine import DockerEngine
from sandbox.docker.files import committed_images
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.network import private_networks

_POLL_S = 0.3


async def inventory_without_labels(engine: DockerEngine, labels: Mapping[str, str]) -> DockerInventory:
    """List what the engine holds, except containers, networks and committed images with all these labels.

    Raises DockerEngineError.
    """
    own = DockerInventory(
        frozenset(each.id for each in await engine.containers(labels)),
        frozenset(each.id for each in await private_networks.list_networks(engine, labels)),
        frozenset(),
        frozenset(each.image for each in await committed_images.list_committed_images(engine, labels)),
    )
    return (await engine.inventory()).new_since(own)


async def inventory_of_others(engine: DockerEngine, key: str, value: str) -> DockerInventory:
    """List what carries the label ``key`` with another value, and so belongs to a process that may still be working.

    Raises DockerEngineError.
    """

    def others(labels: Mapping[str, str]) -> bool:
        return labels.get(key, value) != value

    return DockerInventory(
        frozenset(each.id for each in await engine.containers() if others(each.labels)),
        frozenset(each.id for each in await private_networks.list_networks(engine, {}) if others(each.labels)),
        frozenset(),
        frozenset(
            each.image for each in await committed_images.list_committed_images(engine, {}) if others(each.labels)
        ),
    )


async def wait_for_leaks(
    engine: DockerEngine,
    before: DockerInventory,
    *,
    patience_s: float = 90.0,
    count_reserved: Callable[[], Awaitable[int]] | None = None,
    list_others: Callable[[], Awaitable[DockerInventory]] | None = None,
) -> DockerInventory:
    """Return what is new and stays for ``patience_s``, within which removals in progress may finish.

    ``count_reserved`` returns how many new containers a server keeps for itself; ``list_others`` what belongs to
    other processes. Raises DockerEngineError.
    """
    give_up = time.monotonic() + patience_s
    while True:
        of_others = await list_others() if list_others is not None else before
        new = (await engine.inventory()).new_since(before).new_since(of_others)
        if new and list_others is not None:  # created since then
            new = new.new_since(await list_others())
        if new.containers and count_reserved is not None:
            new = replace(new, containers=frozenset(sorted(new.containers)[await count_reserved() :]))
        if not new or time.monotonic() > give_up:
            return new
        await asyncio.sleep(_POLL_S)
