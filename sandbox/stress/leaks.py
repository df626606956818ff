"""What an engine holds that it did not hold before: by its full lists, not by a label."""

from __future__ import annotations

import asyncio
import time

from sandbox.engine import DockerEngine, Inventory

_PATIENCE_S = 90.0
_POLL_S = 0.3


async def left(engine: DockerEngine, before: Inventory) -> Inventory:
    """What is new and stays, once the engine has had time for removals that are under way.  Raises EngineError."""
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        now = await engine.inventory()
        new = Inventory(
            now.containers - before.containers, now.networks - before.networks, now.volumes - before.volumes
        )
        if not (new.containers or new.networks or new.volumes) or time.monotonic() > give_up:
            return new
        await asyncio.sleep(_POLL_S)
