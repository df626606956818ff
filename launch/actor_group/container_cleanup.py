"""Removes the containers that workers which died left on the driver's machine."""

from __future__ import annotations

import time

from launch.config import RunConfig
from protocol.errors import LongshoreError
from protocol.events import EventLog
from sandbox.pool.run_orphans import SETTLE_S, remove_run_orphans


def container_settle_s(last_worker_death: float | None, config: RunConfig) -> float | None:
    """Return how many more seconds a Docker engine may work for workers that have died; None if none did.

    ``last_worker_death`` is by the monotonic clock."""
    if last_worker_death is None or not config.sandbox.uses_worker_pools:
        return None
    return max(0.0, last_worker_death + SETTLE_S - time.monotonic())


async def remove_orphaned_containers(run_id: str, settle_s: float, events: EventLog) -> None:
    """Remove the containers that dead workers left on this machine, and those that its Docker engine still creates."""
    try:
        await remove_run_orphans(run_id, settle_s)
    except LongshoreError as error:
        events.emit("stop.failed", why=str(error))
