"""If these fail, a run takes GPUs that it did not hold, or holds so much that it waits for itself."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.runtime import placement_groups as actor_places
from actors.runtime.placement_groups import NodeShare, PlacementBundle, PlacementError
from launch.config import RunConfig, load_recipe
from launch.hosts import slot_reservation
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import place_engines, place_judges, place_workers
from launch.hosts.slot_reservation import LEARNER_ROLE, ActorSlot, plan_slots, reserve_slots, resource_shares
from protocol.errors import UserError


def nodes(*sizes: tuple[int, int]) -> list[ClusterNode]:
    """A node with so many processors and GPUs."""
    return [
        ClusterNode(f"node-{index}", f"ray-{index}", f"10.0.0.{index}", gpus, cpus, remote=index > 0)
        for index, (cpus, gpus) in enumerate(sizes)
    ]


GPUS = ("engine.device=cuda", "learner.device=cuda", "engine.tp=2", "engine.count=2", "learner.ranks=2")


def slots_of(config: RunConfig, there: list[ClusterNode]) -> dict[str, dict[str, ActorSlot]]:
    judges = place_judges(config, there)
    return plan_slots(config, there[0], place_engines(config, there), judges, place_workers(config, there))


def test_each_role_holds_the_gpus_that_it_computes_on() -> None:
    judge = ("judge.enabled=true", "judge.model=/judge", "judge.engines=3", "learner.advantage=turn")
    config, there = load_recipe("demo", [*GPUS, *judge]), nodes((8, 2), (8, 4), (4, 3))
    slots = resource_shares(slots_of(config, there))
    assert {role: [share.gpus for share in actors.values()] for role, actors in slots.items()} == {
        LEARNER_ROLE: [2],
        "engines": [2, 2],
        "judges": [1, 1, 1],
        "workers": [0, 0, 0],
    }


@pytest.mark.parametrize("cpus", [0, 1, 2, 64])
def test_no_more_processors_are_held_than_a_node_has(cpus: int) -> None:
    """Otherwise a run on a small machine would wait for slots that it never gets."""
    config, there = load_recipe("demo", ["engine.count=3"]), nodes((cpus, 0), (cpus, 0))
    slots = resource_shares(slots_of(config, there))
    of_node = Counter[str]()
    for actors in slots.values():
        for share in actors.values():
            assert share.resources, "Ray refuses a place that holds nothing"
            of_node[share.node_id] += share.cpus
    assert all(total <= cpus for total in of_node.values())


class FakePlacementGroups:
    """Fake: gives places until it has given ``room`` groups."""

    def __init__(self, room: int) -> None:
        self.room, self.reserved, self.back = room, list[str](), list[PlacementBundle]()

    async def hold(self, name: str, wanted: Sequence[NodeShare], timeout_s: float) -> list[PlacementBundle]:
        if len(self.reserved) == self.room:
            raise PlacementError(f"the cluster has no place for {name}")
        self.reserved.append(name)
        return [PlacementBundle(cast("Any", None), index) for index in range(len(wanted))]

    def give_back(self, places: Sequence[PlacementBundle]) -> None:
        self.back += places


@pytest.mark.parametrize("room", [2, 3])
async def test_reserved_slots_are_released_even_if_the_rest_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    ray, config, there = FakePlacementGroups(room), load_recipe("demo"), nodes((8, 0), (8, 0))
    monkeypatch.setattr(slot_reservation, "reserve_bundles", ray.hold)
    monkeypatch.setattr(slot_reservation, "release_bundles", ray.give_back)
    slots = slots_of(config, there)
    if room == 3:
        async with reserve_slots("run/1", slots) as got:
            assert set(got) == {LEARNER_ROLE, "engine-0", "worker-0-0", "worker-1-0"}
            assert ray.back == []
    else:
        with pytest.raises(UserError, match=r"no place for run/1/workers.*`ray status`"):
            async with reserve_slots("run/1", slots):
                pytest.fail("it went on")
    assert ray.reserved == ["run/1/learner", "run/1/engines", "run/1/workers"][:room]
    assert len(ray.back) == room + (room == 3)


class FakeGroup:
    """Fake: a placement group that there is no room for, until it is removed."""

    def __init__(self) -> None:
        self.waited_for, self.removed = threading.Event(), threading.Event()

    def wait(self, timeout_s: float) -> bool:
        self.waited_for.set()
        self.removed.wait()
        return False


async def test_a_cancelled_reservation_holds_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, Ctrl-C on a full cluster has no effect for a minute."""
    group = FakeGroup()
    ray = SimpleNamespace(
        placement_group=lambda *_, **__: group, remove_placement_group=lambda removed: removed.removed.set()
    )
    monkeypatch.setattr(actor_places, "util", ray)
    async with asyncio.TaskGroup() as tasks:
        holding = tasks.create_task(actor_places.reserve_bundles("run/1", [NodeShare("ray-0", 1.0)], 60.0))
        await asyncio.to_thread(group.waited_for.wait)
        holding.cancel()
    assert holding.cancelled()
    assert group.removed.is_set()
