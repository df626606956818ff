"""What an engine holds that it did not hold before: by its full lists, not by a label."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from sandbox.docker import committed_images, networks
from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory

_POLL_S = 0.3


async def inventory_without_labels(engine: DockerEngine, labels: Mapping[str, str]) -> DockerInventory:
    """What the engine holds, but for containers, networks and copies with all these labels.  Raises EngineError."""
    own = DockerInventory(
        frozenset(each.id for each in await engine.containers(labels)),
        frozenset(each.id for each in await networks.list_networks(engine, labels)),
        frozenset(),
        frozenset(each.image for each in await committed_images.list_committed_images(engine, labels)),
    )
    return (await engine.inventory()).new_since(own)


async def inventory_of_others(engine: DockerEngine, key: str, value: str) -> DockerInventory:
    """What carries the label ``key`` with another value: somebody else's, who may be at work.  Raises EngineError."""

    def others(labels: Mapping[str, str]) -> bool:
        return labels.get(key, value) != value

    return DockerInventory(
        frozenset(each.id for each in await engine.containers() if others(each.labels)),
        frozenset(each.id for each in await networks.list_networks(engine, {}) if others(each.labels)),
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
    """What is new and stays, once the engine has had ``patience_s`` for removals that are under way.

    ``kept``: how many new containers a server keeps for itself.  ``apart``: what is somebody else's.  Raises
    EngineError.
    """
    give_up = time.monotonic() + patience_s
    while True:
        theirs = await list_others() if list_others is not None else before
        new = (await engine.inventory()).new_since(before).new_since(theirs)
        if new and list_others is not None:  # begun since then
            new = new.new_since(await list_others())
        if new.containers and count_reserved is not None:
            new = replace(new, containers=frozenset(sorted(new.containers)[await count_reserved() :]))
        if not new or time.monotonic() > give_up:
            return new
        await asyncio.sleep(_POLL_S)
