"""What an engine holds that it did not hold before: by its full lists, not by a label."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sandbox.engine import DockerEngine, Inventory
from sandbox.stress.metrics import Metrics
from sandbox.sweep import LABEL

_PATIENCE_S = 90.0
_POLL_S = 0.3


async def left(engine: DockerEngine, before: Inventory, kept: Callable[[], Awaitable[int]] | None = None) -> Inventory:
    """What is new and stays, once the engine has had time for removals that are under way.

    ``kept``: how many new containers a server keeps for itself.  Raises EngineError.
    """
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        now = await engine.inventory()
        new = Inventory(
            now.containers - before.containers, now.networks - before.networks, now.volumes - before.volumes
        )
        if new.containers and kept is not None:
            new = replace(new, containers=frozenset(sorted(new.containers)[await kept() :]))
        if not (new.containers or new.networks or new.volumes) or time.monotonic() > give_up:
            return new
        await asyncio.sleep(_POLL_S)


class ServersOwn:
    """How many containers of a pool server are new and not a client's: warm ones, where old ones were used up."""

    def __init__(self, engine: DockerEngine, metrics: Metrics, before: Inventory, live_before: int) -> None:
        self._engine, self._metrics = engine, metrics
        self._before, self._live_before = before, live_before
        self.pool = ""
        """Name of the server's pool, once a container of it has been seen."""

    async def count(self) -> int:
        """Raises EngineError, UserError when the server does not answer."""
        there = await self._engine.containers({f"{LABEL}.pool": self.pool}) if self.pool else ()
        old = sum(each.id in self._before.containers for each in there)
        return max(0, int(await self._metrics.read("sandboxes_warm")) + self._live_before - old)
