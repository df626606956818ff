"""Removes what a run's dead workers left on this machine's Docker engine.

It removes only containers, committed images, volumes and networks that carry the run's label and whose owner is proved
dead, or that have long expired.
"""

from __future__ import annotations

import asyncio
import time

from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import RUN_LABEL
from sandbox.host_record import docker_url
from sandbox.pool.orphans import remove_abandoned

SETTLE_S = 20.0
"""Seconds after its owner's death in which the daemon may still create what the owner requested."""
_PAUSE_S = 1.0


async def remove_run_orphans(run_id: str, for_s: float) -> int:
    """Look once, and repeat for ``for_s`` seconds, because the daemon may still be working on a dead owner's request.

    Returns how many resources were removed.
    """
    give_up, removed = time.monotonic() + for_s, 0
    async with DockerEngine(docker_url()) as engine:
        while True:
            removed += await remove_abandoned(engine, RUN_LABEL, run_id)
            if time.monotonic() >= give_up:
                return removed
            await asyncio.sleep(_PAUSE_S)
