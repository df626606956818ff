"""What an engine holds that it did not hold before: by its full lists, not by a label."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from sandbox import commit, private
from sandbox.engine import DockerEngine, Inventory

_POLL_S = 0.3


async def others(engine: DockerEngine, labels: Mapping[str, str]) -> Inventory:
    """What the engine holds, but for containers, networks and copies with all these labels.  Raises EngineError."""
    own = Inventory(
        frozenset(each.id for each in await engine.containers(labels)),
        frozenset(each.id for each in await private.networks(engine, labels)),
        frozenset(),
        frozenset(each.image for each in await commit.copies(engine, labels)),
    )
    return (await engine.inventory()).since(own)


async def foreign(engine: DockerEngine, key: str, value: str) -> Inventory:
    """What carries the label ``key`` with another value: somebody else's, who may be at work.  Raises EngineError."""

    def others(labels: Mapping[str, str]) -> bool:
        return labels.get(key, value) != value

    return Inventory(
        frozenset(each.id for each in await engine.containers() if others(each.labels)),
        frozenset(each.id for each in await private.networks(engine, {}) if others(each.labels)),
        frozenset(),
        frozenset(each.image for each in await commit.copies(engine, {}) if others(each.labels)),
    )


async def left(
    engine: DockerEngine,
    before: Inventory,
    *,
    patience_s: float = 90.0,
    kept: Callable[[], Awaitable[int]] | None = None,
    apart: Callable[[], Awaitable[Inventory]] | None = None,
) -> Inventory:
    """What is new and stays, once the engine has had ``patience_s`` for removals that are under way.

    ``kept``: how many new containers a server keeps for itself.  ``apart``: what is somebody else's.  Raises
    EngineError.
    """
    give_up = time.monotonic() + patience_s
    while True:
        theirs = await apart() if apart is not None else before
        new = (await engine.inventory()).since(before).since(theirs)
        if new and apart is not None:  # begun since then
            new = new.since(await apart())
        if new.containers and kept is not None:
            new = replace(new, containers=frozenset(sorted(new.containers)[await kept() :]))
        if not new or time.monotonic() > give_up:
            return new
        await asyncio.sleep(_POLL_S)
