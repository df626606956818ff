"""If these fail, engines serve old weights for longer than they must, or all of them stand still at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from actors.engines.messages import InvalidWeights, ServerRestarting, WeightLoadReport
from actors.scheduler.settings import SchedulerRunState
from launch.control.run_state import RunStatePublisher
from launch.weight_sync import manager as pusher_module
from launch.weight_sync.manager import WeightSyncManager
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.local_actors import LocalRemote


class FakeConductor:
    def __init__(self) -> None:
        self.published: list[int] = []

    async def set_run_state(self, standing: SchedulerRunState) -> None:
        self.published.append(standing.published_step)


async def _nothing() -> None:
    pass


class FakeFleet:
    """Engines that share one gate; ``failing`` versions fail so many times more, and a ``sick`` engine always."""

    def __init__(self, count: int) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.loading = self.most_loading = 0
        self.began: list[int] = []
        self.failing: dict[int, int] = {}
        self.sick: set[int] = set()
        self.down: set[int] = set()
        """Without a server."""
        self.serves: dict[int, int] = {}
        """Engine → version."""
        self.refusing: set[str] = set()
        """Folders whose files an engine refuses, once each."""
        self.sums: dict[int, str] = {}
        """Engine → checksum of whatever it loads."""
        self.doubted: list[tuple[int, int, str]] = []
        self.on_stage = self.on_loaded = _nothing
        """Done while an engine reads files, and before it says that it has loaded them."""
        self.remotes = [LocalRemote(FakeEngine(self, index), f"engine-{index}") for index in range(count)]


class FakeEngine:
    def __init__(self, fleet: FakeFleet, index: int) -> None:
        self.fleet, self.index = fleet, index
        self.staged: WeightManifest | None = None

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        if manifest.path in self.fleet.refusing:
            self.fleet.refusing.remove(manifest.path)
            raise InvalidWeights("the digest differs")
        self.staged = manifest
        await self.fleet.on_stage()

    async def load_weights(self, manifest: WeightManifest, deadline_s: float, *, patient: bool) -> WeightLoadReport:
        """A patient one would keep its turn for as long as its server starts."""
        assert self.staged == manifest
        assert not patient
        fleet = self.fleet
        if self.index in fleet.down:
            raise ServerRestarting("another one is being started")
        fleet.began.append(manifest.version)
        fleet.loading += 1
        fleet.most_loading = max(fleet.most_loading, fleet.loading)
        try:
            await fleet.gate.wait()
            await asyncio.sleep(0)
        finally:
            fleet.loading -= 1
        if fleet.failing.get(manifest.version, 0) > 0 or self.index in fleet.sick:
            fleet.failing[manifest.version] = fleet.failing.get(manifest.version, 0) - 1
            raise InfraError("the server refused")
        fleet.serves[self.index] = manifest.version
        await fleet.on_loaded()
        return WeightLoadReport(
            version=manifest.version,
            pause_ms=3.5,
            load_ms=2.0,
            prefetch_ms=1.0,
            checksum=fleet.sums.get(self.index, "same"),
        )

    async def distrust_weights(self, version: int, checksum: str) -> None:
        self.fleet.doubted.append((self.index, version, checksum))


class FakeCopies:
    """A machine's copies, which come when ``gate`` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[tuple[int, int, bool]] = []
        """Version, version that all engines serve, and whether the copy that is there was refused."""

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, refetch: bool = False, alone: bool = False
    ) -> WeightManifest:
        assert not alone, "all engines are given it"
        self.asked.append((manifest.version, served, refetch))
        await self.gate.wait()
        return replace(manifest, path="/copy")


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher_module, "_RETRY_S", 0.001)


def manifest(version: int, step: int | None = None) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version if step is None else step, NO_VERSION, "/weights", "00", 1, 1)


@contextlib.asynccontextmanager
async def pushing(
    run_dir: Path, fleet: FakeFleet, **settings: Any
) -> AsyncIterator[tuple[WeightSyncManager, FakeConductor]]:
    conductor = FakeConductor()
    pusher = WeightSyncManager(
        fleet.remotes, RunStatePublisher(LocalRemote(conductor)), EventLog(run_dir, "driver", "n"), 30.0, **settings
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pusher.run())
        try:
            async with asyncio.timeout(30):
                yield pusher, conductor
        finally:
            task.cancel()


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_version_that_was_overtaken_before_its_push_is_never_pushed(tmp_path: Path) -> None:
    fleet = FakeFleet(1)
    fleet.gate.clear()
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await breathe()
        await pusher.push_weights(manifest(2))
        await pusher.push_weights(manifest(3))
        fleet.gate.set()
        await pusher.wait_newest_served(60)
        assert fleet.began == [1, 3]
        assert pusher.served == manifest(3)
        assert conductor.published[-1] == 3


async def test_a_version_that_is_overtaken_while_an_engine_waits_is_not_pushed_there(
    tmp_path: Path,
) -> None:
    fleet = FakeFleet(2)
    fleet.gate.clear()
    async with pushing(tmp_path, fleet, max_updating_share=0.5) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await breathe()
        await pusher.push_weights(manifest(2))
        fleet.gate.set()
        await pusher.wait_served(manifest(2))
    assert sorted(fleet.began) == [1, 2, 2]
    assert conductor.published == [2]


async def test_versions_that_come_faster_than_an_engine_can_read_them_still_reach_it(tmp_path: Path) -> None:
    """Else it serves the first weights for as long as the learner is quick."""
    fleet, versions = FakeFleet(1), iter(range(2, 12))
    async with pushing(tmp_path, fleet) as (pusher, _):

        async def offer_next() -> None:
            if (version := next(versions, None)) is not None:
                await pusher.push_weights(manifest(version))

        fleet.on_stage = offer_next
        await pusher.push_weights(manifest(1))
        await pusher.wait_served(manifest(11))
    assert fleet.began == [2, 4, 6, 8, 10, 11]


async def test_admission_hears_of_the_oldest_version_in_use_while_newer_ones_come(tmp_path: Path) -> None:
    """Else it waits, and the learner after it, until no version comes any more."""
    fleet, versions = FakeFleet(2), iter(range(2, 12))
    async with pushing(tmp_path, fleet, max_updating_share=0.5) as (pusher, conductor):

        async def offer_next() -> None:
            if (version := next(versions, None)) is not None:
                await pusher.push_weights(manifest(version))

        fleet.on_loaded = offer_next
        await pusher.push_weights(manifest(1))
        await pusher.wait_served(manifest(11))
    assert conductor.published == sorted(set(conductor.published))
    assert conductor.published[0] < 5
    assert conductor.published[-1] == 11


async def test_an_engine_that_waits_for_its_turn_is_not_pushed_to_once_it_has_to_stand_aside(tmp_path: Path) -> None:
    """Else it takes its memory back in the middle of the learner's turn."""
    fleet = FakeFleet(2)
    fleet.gate.clear()
    async with pushing(tmp_path, fleet, max_updating_share=0.5) as (pusher, _):
        await pusher.push_weights(manifest(1))
        await breathe()
        pusher.suspend()
        fleet.gate.set()
        await breathe()
        assert fleet.began == [1]
        await pusher.resume()
        await pusher.wait_served(manifest(1))
    assert sorted(fleet.serves) == [0, 1]


async def test_a_failed_load_is_tried_again_and_named_once(tmp_path: Path) -> None:
    fleet = FakeFleet(1)
    fleet.failing = {1: 3}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await pusher.wait_newest_served(60)
        assert fleet.began == [1, 1, 1, 1]
        assert conductor.published == [1]
        assert pusher.pause_ms == 3.5
    lines = (tmp_path / "events" / "driver.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["kind"] for line in lines] == ["engine.load_failed"]


async def test_a_version_that_cannot_be_loaded_gives_way_to_the_next(tmp_path: Path) -> None:
    fleet = FakeFleet(2)
    fleet.failing = {1: 1_000_000}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await breathe()
        await pusher.push_weights(manifest(2))
        await pusher.wait_newest_served(60)
        assert conductor.published == [2]


async def test_an_engine_that_fails_keeps_no_other_from_the_newest_version(tmp_path: Path) -> None:
    """Else one sick server makes all of rollout stale."""
    fleet = FakeFleet(3)
    fleet.sick = {1}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        for version in (1, 2):
            await pusher.push_weights(manifest(version))
            while (fleet.serves.get(0), fleet.serves.get(2)) != (version, version):  # noqa: ASYNC110  others' state
                await asyncio.sleep(0)
        assert conductor.published == []
        fleet.sick = set()
        await pusher.wait_newest_served(60)
        assert fleet.serves == {0: 2, 1: 2, 2: 2}
        assert conductor.published == [2]


async def test_engines_that_hold_other_weights_as_the_same_version_are_all_in_doubt(tmp_path: Path) -> None:
    """Nobody else sees a load that was half done: the server says the version that it was told."""
    fleet = FakeFleet(2)
    async with pushing(tmp_path, fleet) as (pusher, _):
        await pusher.push_weights(manifest(1))
        await pusher.wait_newest_served(60)
        assert fleet.doubted == []
        fleet.sums = {1: "half"}
        await pusher.push_weights(manifest(2))
        await pusher.wait_newest_served(60)
        both = [(0, 2, "same"), (1, 2, "half")]
        assert sorted(fleet.doubted) == both
        await pusher.push_weights(manifest(3))
        await pusher.wait_newest_served(60)
        assert sorted(fleet.doubted) == both, "new servers do not mend machines that differ"
        fleet.sums = {}
        await pusher.push_weights(manifest(4))
        await pusher.wait_newest_served(60)
        fleet.sums = {0: "half"}
        await pusher.push_weights(manifest(5))
        await pusher.wait_newest_served(60)
    assert sorted(fleet.doubted) == sorted([*both, (0, 5, "half"), (1, 5, "same")])


@pytest.mark.parametrize(("engines", "share", "at_once"), [(4, 0.5, 2), (5, 0.5, 2), (3, 0.1, 1), (1, 0.5, 1)])
async def test_only_a_share_of_the_fleet_stands_still(tmp_path: Path, engines: int, share: float, at_once: int) -> None:
    fleet = FakeFleet(engines)
    async with pushing(tmp_path, fleet, max_updating_share=share) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await pusher.wait_newest_served(60)
        assert fleet.most_loading == at_once
        assert len(fleet.began) == engines
        assert conductor.published == [1]


async def test_nobody_waits_for_an_engine_whose_server_has_to_start_again(tmp_path: Path) -> None:
    """Else rollout, which may run ahead of what is served so far only, stands still for as long as that takes."""
    fleet = FakeFleet(3)
    fleet.down = {1}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        pusher.set_served(manifest(0))
        for version in (1, 2):
            await pusher.push_weights(manifest(version))
            await pusher.wait_newest_served(60)
        assert conductor.published == [1, 2]
        assert set(fleet.serves) == {0, 2}
        fleet.down = set()
        while fleet.serves.get(1) != 2:  # noqa: ASYNC110  others' state
            await asyncio.sleep(0)
        fleet.sick = {1}
        await pusher.push_weights(manifest(3))
        while (fleet.serves[0], fleet.serves[2]) != (3, 3):  # noqa: ASYNC110  others' state
            await asyncio.sleep(0)
        await breathe()
        assert conductor.published == [1, 2], "it has a server again, which samples under version 2"


async def test_a_fleet_without_any_server_serves_nothing_new(tmp_path: Path) -> None:
    fleet = FakeFleet(2)
    fleet.down = {0, 1}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        pusher.set_served(manifest(0))
        await pusher.push_weights(manifest(1))
        await breathe()
        assert conductor.published == []
        fleet.down = set()
        await pusher.wait_newest_served(60)
        assert conductor.published == [1]


async def test_an_engine_that_is_gone_with_its_node_is_waited_for_no_more(tmp_path: Path) -> None:
    """Else no version counts as served any more, and rollout stands still."""
    fleet = FakeFleet(2)
    fleet.sick = {1}
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await breathe()
        assert conductor.published == []
        await pusher.remove_engine("engine-1")
        await pusher.wait_newest_served(60)
        await pusher.push_weights(manifest(2))
        await pusher.wait_newest_served(60)
        assert conductor.published == [1, 2]
        assert set(fleet.serves) == {0}


async def test_an_engine_that_was_lost_while_it_loaded_holds_no_later_version_back(tmp_path: Path) -> None:
    fleet = FakeFleet(2)
    async with pushing(tmp_path, fleet, max_updating_share=1.0) as (pusher, conductor):

        async def lose() -> None:
            fleet.on_loaded = _nothing
            await pusher.remove_engine("engine-1")

        fleet.on_loaded = lose
        await pusher.push_weights(manifest(1))
        await pusher.wait_newest_served(60)
        await pusher.push_weights(manifest(2))
        await pusher.wait_newest_served(60)
        assert conductor.published == [1, 2]
    assert fleet.serves == {0: 2, 1: 1}


async def test_a_version_comes_to_the_machine_before_its_engine_is_told(tmp_path: Path) -> None:
    """Else the engine stands still for as long as the network takes."""
    fleet, copies = FakeFleet(1), FakeCopies()
    async with pushing(tmp_path, fleet, transport=WeightTransport({"engine-0": LocalRemote(copies)})) as (pusher, _):
        pusher.set_served(manifest(1))
        await pusher.push_weights(manifest(2))
        await breathe()
        assert (copies.asked, fleet.began) == ([(2, 1, False)], [])
        copies.gate.set()
        await pusher.wait_newest_served(60)
        assert fleet.began == [2]


async def test_a_copy_that_an_engine_refused_is_not_offered_again(tmp_path: Path) -> None:
    fleet, copies = FakeFleet(1), FakeCopies()
    copies.gate.set()
    fleet.refusing = {"/copy"}
    async with pushing(tmp_path, fleet, transport=WeightTransport({"engine-0": LocalRemote(copies)})) as (pusher, _):
        await pusher.push_weights(manifest(1))
        await pusher.wait_newest_served(60)
    assert copies.asked == [(1, NO_VERSION, False), (1, NO_VERSION, True)]


async def test_admission_hears_of_a_version_only_when_every_engine_serves_it(tmp_path: Path) -> None:
    fleet = FakeFleet(2)
    fleet.gate.clear()
    async with pushing(tmp_path, fleet) as (pusher, conductor):
        await pusher.push_weights(manifest(1))
        await breathe()
        assert conductor.published == []
        fleet.gate.set()
        await pusher.wait_newest_served(60)
        assert conductor.published == [1]


async def test_weights_that_a_checkpoint_took_back_are_waited_for_too(tmp_path: Path) -> None:
    """Otherwise the last evaluation measures the weights of steps that never were."""
    fleet = FakeFleet(1)
    async with pushing(tmp_path, fleet) as (pusher, _):
        await pusher.push_weights(manifest(6, step=6))
        await pusher.wait_newest_served(60)
        await pusher.push_weights(manifest(7, step=4))
        await pusher.wait_newest_served(60)
        assert pusher.served == manifest(7, step=4)


async def test_the_wait_for_weights_that_no_engine_takes_has_an_end(tmp_path: Path) -> None:
    fleet = FakeFleet(1)
    fleet.failing = {1: 1_000_000}
    async with pushing(tmp_path, fleet) as (pusher, _):
        await pusher.push_weights(manifest(1))
        with pytest.raises(InfraError, match="did not load the last weights"):
            await pusher.wait_newest_served(0.01)
