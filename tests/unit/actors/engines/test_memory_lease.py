"""If these fail, a learner that died keeps an engine from serving, or one that lives loses its device."""

from __future__ import annotations

import asyncio

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import WeightLoadError
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, "/weights", "00", 1, 1)


async def refused(turn: MemoryLease) -> WeightLoadError:
    """Stands in for the engine's task: the load that ends the turn fails."""
    return WeightLoadError(f"{await turn.wait_until_ended()}")


async def test_a_turn_that_nobody_renews_ends_with_its_lease() -> None:
    turn = MemoryLease()
    turn.renew(0.0)
    assert await turn.wait_until_ended() is None


async def test_a_lease_that_is_renewed_before_its_end_goes_on() -> None:
    turn = MemoryLease()
    turn.renew(0.0)
    async with asyncio.TaskGroup() as group:
        turn.task = group.create_task(refused(turn))
        await asyncio.sleep(0)
        turn.renew(3600.0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not turn.task.done()
        assert isinstance(await turn.end_with_weights(manifest(1)), WeightLoadError)


async def test_the_first_weights_that_are_given_back_count() -> None:
    turn = MemoryLease()
    turn.renew(3600.0)
    async with asyncio.TaskGroup() as group:
        turn.task = group.create_task(refused(turn))
        first, second = (group.create_task(turn.end_with_weights(manifest(version))) for version in (1, 2))
    assert str(first.result()) == str(second.result()) == str(manifest(1))
