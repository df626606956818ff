"""What the Docker engine holds before and after a run: the full lists, not a label query."""

from __future__ import annotations

import asyncio
import contextlib

from sandbox.engine import DockerEngine, Inventory
from sandbox.host import docker_url

_PATIENCE_S = 60.0
_POLL_S = 0.5


async def take_inventory() -> Inventory:
    """Every container, network and volume of the engine."""
    async with DockerEngine(docker_url()) as engine:
        return await engine.inventory()


def added(before: Inventory, now: Inventory) -> frozenset[str]:
    """What is there ``now`` and was not ``before``, as ``kind:id``."""
    return frozenset(
        f"{kind}:{each}"
        for kind, new in (
            ("container", now.containers - before.containers),
            ("network", now.networks - before.networks),
            ("volume", now.volumes - before.volumes),
        )
        for each in new
    )


async def wait_for_leaks(before: Inventory) -> frozenset[str]:
    """What is left, once the engine has had time to finish removals that are under way."""
    left = frozenset[str]()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while left := added(before, await take_inventory()):  # noqa: ASYNC110  the daemon has no event for "nothing left"
                await asyncio.sleep(_POLL_S)
    return left
