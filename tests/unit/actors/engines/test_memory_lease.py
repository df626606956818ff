"""If these fail, a learner that died keeps an engine from serving, or one that lives loses its device."""

from __future__ import annotations

import asyncio

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import WeightLoadError
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, "/weights", "00", 1, 1)


async def refused(lease: MemoryLease) -> WeightLoadError:
    """Stands in for the engine's task: the load that ends the lease fails."""
    return WeightLoadError(f"{await lease.wait_until_ended()}")


async def test_a_lease_that_is_not_renewed_expires() -> None:
    lease = MemoryLease()
    lease.renew(0.0)
    assert await lease.wait_until_ended() is None


async def test_a_lease_that_is_renewed_before_its_end_goes_on() -> None:
    lease = MemoryLease()
    lease.renew(0.0)
    async with asyncio.TaskGroup() as group:
        lease.task = group.create_task(refused(lease))
        await asyncio.sleep(0)
        lease.renew(3600.0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not lease.task.done()
        assert isinstance(await lease.end_with_weights(manifest(1)), WeightLoadError)


async def test_the_first_weights_given_back_with_the_memory_are_used() -> None:
    lease = MemoryLease()
    lease.renew(3600.0)
    async with asyncio.TaskGroup() as group:
        lease.task = group.create_task(refused(lease))
        first, second = (group.create_task(lease.end_with_weights(manifest(version))) for version in (1, 2))
    assert str(first.result()) == str(second.result()) == str(manifest(1))
