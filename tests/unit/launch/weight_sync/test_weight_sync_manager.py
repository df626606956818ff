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
from launch.control.scheduler_state import SchedulerStateSender
from launch.weight_sync import manager as manager_module
from launch.weight_sync.manager import WeightSyncManager
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_scheduler import FakeScheduler


async def _nothing() -> None:
    pass


class FakeSyncedEngines:
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
        self.remotes = [LocalRemote(SyncedEngine(self, index), f"engine-{index}") for index in range(count)]


class SyncedEngine:
    def __init__(self, fake_engines: FakeSyncedEngines, index: int) -> None:
        self.fake_engines, self.index = fake_engines, index
        self.staged: WeightManifest | None = None

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        if manifest.path in self.fake_engines.refusing:
            self.fake_engines.refusing.remove(manifest.path)
            raise InvalidWeights("the digest differs")
        self.staged = manifest
        await self.fake_engines.on_stage()

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool
    ) -> WeightLoadReport:
        """One that waits would keep its turn for as long as its server starts."""
        assert self.staged == manifest
        assert not wait_for_restart
        fake_engines = self.fake_engines
        if self.index in fake_engines.down:
            raise ServerRestarting("another one is being started")
        fake_engines.began.append(manifest.version)
        fake_engines.loading += 1
        fake_engines.most_loading = max(fake_engines.most_loading, fake_engines.loading)
        try:
            await fake_engines.gate.wait()
            await asyncio.sleep(0)
        finally:
            fake_engines.loading -= 1
        if fake_engines.failing.get(manifest.version, 0) > 0 or self.index in fake_engines.sick:
            fake_engines.failing[manifest.version] = fake_engines.failing.get(manifest.version, 0) - 1
            raise InfraError("the server refused")
        fake_engines.serves[self.index] = manifest.version
        await fake_engines.on_loaded()
        return WeightLoadReport(
            version=manifest.version,
            pause_ms=3.5,
            load_ms=2.0,
            prefetch_ms=1.0,
            checksum=fake_engines.sums.get(self.index, "same"),
        )

    async def restart_if_checksum(self, version: int, checksum: str) -> None:
        self.fake_engines.doubted.append((self.index, version, checksum))


class FakeGatedCopies:
    """A machine's copies, which come when ``gate`` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.requests: list[tuple[int, int, bool]] = []
        """Version, version that all engines serve, and whether the copy that is there was refused."""

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, refetch: bool = False, pinned: bool = False
    ) -> WeightManifest:
        assert not pinned, "all engines are given it"
        self.requests.append((manifest.version, served, refetch))
        await self.gate.wait()
        return replace(manifest, path="/copy")


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "RETRY_S", 0.001)


def manifest(version: int, step: int | None = None) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version if step is None else step, NO_VERSION, "/weights", "00", 1, 1)


@contextlib.asynccontextmanager
async def pushing(
    run_dir: Path, fake_engines: FakeSyncedEngines, **settings: Any
) -> AsyncIterator[tuple[WeightSyncManager, FakeScheduler]]:
    scheduler = FakeScheduler()
    settings = {"max_updating_share": 0.5, "max_update_overhead": 1.0} | settings
    manager = WeightSyncManager(
        engines=fake_engines.remotes,
        report_served=SchedulerStateSender(LocalRemote(scheduler)).set_served_step,
        events=EventLog(run_dir, "driver", "n"),
        update_timeout_s=30.0,
        **settings,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        try:
            async with asyncio.timeout(30):
                yield manager, scheduler
        finally:
            task.cancel()


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_version_that_was_overtaken_before_its_push_is_never_pushed(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(1)
    fake_engines.gate.clear()
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await breathe()
        await manager.set_newest(manifest(2))
        await manager.set_newest(manifest(3))
        fake_engines.gate.set()
        await manager.wait_newest_served(60)
        assert fake_engines.began == [1, 3]
        assert manager.served == manifest(3)
        assert scheduler.published[-1] == 3


async def test_a_version_that_is_overtaken_while_an_engine_waits_is_not_pushed_there(
    tmp_path: Path,
) -> None:
    fake_engines = FakeSyncedEngines(2)
    fake_engines.gate.clear()
    async with pushing(tmp_path, fake_engines, max_updating_share=0.5) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await breathe()
        await manager.set_newest(manifest(2))
        fake_engines.gate.set()
        await manager.wait_served(manifest(2))
    assert sorted(fake_engines.began) == [1, 2, 2]
    assert scheduler.published == [2]


async def test_versions_that_come_faster_than_an_engine_can_read_them_still_reach_it(tmp_path: Path) -> None:
    """Without this, it serves the first weights for as long as the learner is faster."""
    fake_engines, versions = FakeSyncedEngines(1), iter(range(2, 12))
    async with pushing(tmp_path, fake_engines) as (manager, _):

        async def offer_next() -> None:
            if (version := next(versions, None)) is not None:
                await manager.set_newest(manifest(version))

        fake_engines.on_stage = offer_next
        await manager.set_newest(manifest(1))
        await manager.wait_served(manifest(11))
    assert fake_engines.began == [2, 4, 6, 8, 10, 11]


async def test_admission_hears_of_the_oldest_version_in_use_while_newer_ones_come(tmp_path: Path) -> None:
    """Without this, admission waits, and then the learner, until no more versions are published."""
    fake_engines, versions = FakeSyncedEngines(2), iter(range(2, 12))
    async with pushing(tmp_path, fake_engines, max_updating_share=0.5) as (manager, scheduler):

        async def offer_next() -> None:
            if (version := next(versions, None)) is not None:
                await manager.set_newest(manifest(version))

        fake_engines.on_loaded = offer_next
        await manager.set_newest(manifest(1))
        await manager.wait_served(manifest(11))
    assert scheduler.published == sorted(set(scheduler.published))
    assert scheduler.published[0] < 5
    assert scheduler.published[-1] == 11


async def test_an_engine_that_waits_for_its_turn_gets_no_push_once_updates_are_suspended(tmp_path: Path) -> None:
    """Without this, it takes its memory back while the learner computes."""
    fake_engines = FakeSyncedEngines(2)
    fake_engines.gate.clear()
    async with pushing(tmp_path, fake_engines, max_updating_share=0.5) as (manager, _):
        await manager.set_newest(manifest(1))
        await breathe()
        manager.suspend()
        fake_engines.gate.set()
        await breathe()
        assert fake_engines.began == [1]
        await manager.resume()
        await manager.wait_served(manifest(1))
    assert sorted(fake_engines.serves) == [0, 1]


async def test_a_failed_load_is_tried_again_and_named_once(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(1)
    fake_engines.failing = {1: 3}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await manager.wait_newest_served(60)
        assert fake_engines.began == [1, 1, 1, 1]
        assert scheduler.published == [1]
        assert manager.pause_ms == 3.5
    lines = (tmp_path / "events" / "driver.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["kind"] for line in lines] == ["engine.load_failed"]


async def test_a_version_that_cannot_be_loaded_gives_way_to_the_next(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(2)
    fake_engines.failing = {1: 1_000_000}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await breathe()
        await manager.set_newest(manifest(2))
        await manager.wait_newest_served(60)
        assert scheduler.published == [2]


async def test_an_engine_that_fails_keeps_no_other_from_the_newest_version(tmp_path: Path) -> None:
    """Without this, one failing server makes all of rollout stale."""
    fake_engines = FakeSyncedEngines(3)
    fake_engines.sick = {1}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        for version in (1, 2):
            await manager.set_newest(manifest(version))
            while (fake_engines.serves.get(0), fake_engines.serves.get(2)) != (version, version):  # noqa: ASYNC110  others' state
                await asyncio.sleep(0)
        assert scheduler.published == []
        fake_engines.sick = set()
        await manager.wait_newest_served(60)
        assert fake_engines.serves == {0: 2, 1: 2, 2: 2}
        assert scheduler.published == [2]


async def test_engines_with_different_weights_under_one_version_are_all_doubted(tmp_path: Path) -> None:
    """Nobody else sees a load that was half done: the server says the version that it was told."""
    fake_engines = FakeSyncedEngines(2)
    async with pushing(tmp_path, fake_engines) as (manager, _):
        await manager.set_newest(manifest(1))
        await manager.wait_newest_served(60)
        assert fake_engines.doubted == []
        fake_engines.sums = {1: "half"}
        await manager.set_newest(manifest(2))
        await manager.wait_newest_served(60)
        both = [(0, 2, "same"), (1, 2, "half")]
        assert sorted(fake_engines.doubted) == both
        await manager.set_newest(manifest(3))
        await manager.wait_newest_served(60)
        assert sorted(fake_engines.doubted) == both, "new servers do not mend machines that differ"
        fake_engines.sums = {}
        await manager.set_newest(manifest(4))
        await manager.wait_newest_served(60)
        fake_engines.sums = {0: "half"}
        await manager.set_newest(manifest(5))
        await manager.wait_newest_served(60)
    assert sorted(fake_engines.doubted) == sorted([*both, (0, 5, "half"), (1, 5, "same")])


@pytest.mark.parametrize(("engines", "share", "at_once"), [(4, 0.5, 2), (5, 0.5, 2), (3, 0.1, 1), (1, 0.5, 1)])
async def test_only_a_share_of_the_engines_pauses(tmp_path: Path, engines: int, share: float, at_once: int) -> None:
    fake_engines = FakeSyncedEngines(engines)
    async with pushing(tmp_path, fake_engines, max_updating_share=share) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await manager.wait_newest_served(60)
        assert fake_engines.most_loading == at_once
        assert len(fake_engines.began) == engines
        assert scheduler.published == [1]


async def test_an_engine_with_a_restarting_server_is_not_waited_for(tmp_path: Path) -> None:
    """Without this, rollout, which may run only a bounded number of versions ahead, stops until the server is up."""
    fake_engines = FakeSyncedEngines(3)
    fake_engines.down = {1}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        manager.set_served(manifest(0))
        for version in (1, 2):
            await manager.set_newest(manifest(version))
            await manager.wait_newest_served(60)
        assert scheduler.published == [1, 2]
        assert set(fake_engines.serves) == {0, 2}
        fake_engines.down = set()
        while fake_engines.serves.get(1) != 2:  # noqa: ASYNC110  others' state
            await asyncio.sleep(0)
        fake_engines.sick = {1}
        await manager.set_newest(manifest(3))
        while (fake_engines.serves[0], fake_engines.serves[2]) != (3, 3):  # noqa: ASYNC110  others' state
            await asyncio.sleep(0)
        await breathe()
        assert scheduler.published == [1, 2], "it has a server again, which samples under version 2"


async def test_without_any_server_no_new_version_counts_as_served(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(2)
    fake_engines.down = {0, 1}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        manager.set_served(manifest(0))
        await manager.set_newest(manifest(1))
        await breathe()
        assert scheduler.published == []
        fake_engines.down = set()
        await manager.wait_newest_served(60)
        assert scheduler.published == [1]


async def test_an_engine_lost_with_its_node_is_no_longer_waited_for(tmp_path: Path) -> None:
    """Without this, no version counts as served any more, and rollout stops."""
    fake_engines = FakeSyncedEngines(2)
    fake_engines.sick = {1}
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await breathe()
        assert scheduler.published == []
        await manager.remove_engine("engine-1")
        await manager.wait_newest_served(60)
        await manager.set_newest(manifest(2))
        await manager.wait_newest_served(60)
        assert scheduler.published == [1, 2]
        assert set(fake_engines.serves) == {0}


async def test_an_engine_lost_during_a_load_does_not_hold_back_later_versions(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(2)
    async with pushing(tmp_path, fake_engines, max_updating_share=1.0) as (manager, scheduler):

        async def lose() -> None:
            fake_engines.on_loaded = _nothing
            await manager.remove_engine("engine-1")

        fake_engines.on_loaded = lose
        await manager.set_newest(manifest(1))
        await manager.wait_newest_served(60)
        await manager.set_newest(manifest(2))
        await manager.wait_newest_served(60)
        assert scheduler.published == [1, 2]
    assert fake_engines.serves == {0: 2, 1: 1}


async def test_a_version_is_copied_to_the_machine_before_its_engine_loads_it(tmp_path: Path) -> None:
    """Without this, the engine is paused for as long as the network takes."""
    fake_engines, copies = FakeSyncedEngines(1), FakeGatedCopies()
    async with pushing(tmp_path, fake_engines, transport=WeightTransport({"engine-0": LocalRemote(copies)})) as (
        manager,
        _,
    ):
        manager.set_served(manifest(1))
        await manager.set_newest(manifest(2))
        await breathe()
        assert (copies.requests, fake_engines.began) == ([(2, 1, False)], [])
        copies.gate.set()
        await manager.wait_newest_served(60)
        assert fake_engines.began == [2]


async def test_a_copy_that_an_engine_refused_is_not_offered_again(tmp_path: Path) -> None:
    fake_engines, copies = FakeSyncedEngines(1), FakeGatedCopies()
    copies.gate.set()
    fake_engines.refusing = {"/copy"}
    async with pushing(tmp_path, fake_engines, transport=WeightTransport({"engine-0": LocalRemote(copies)})) as (
        manager,
        _,
    ):
        await manager.set_newest(manifest(1))
        await manager.wait_newest_served(60)
    assert copies.requests == [(1, NO_VERSION, False), (1, NO_VERSION, True)]


async def test_admission_hears_of_a_version_only_when_every_engine_serves_it(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(2)
    fake_engines.gate.clear()
    async with pushing(tmp_path, fake_engines) as (manager, scheduler):
        await manager.set_newest(manifest(1))
        await breathe()
        assert scheduler.published == []
        fake_engines.gate.set()
        await manager.wait_newest_served(60)
        assert scheduler.published == [1]


async def test_weights_after_a_rollback_are_waited_for_too(tmp_path: Path) -> None:
    """Otherwise the last evaluation measures the weights of steps that never were."""
    fake_engines = FakeSyncedEngines(1)
    async with pushing(tmp_path, fake_engines) as (manager, _):
        await manager.set_newest(manifest(6, step=6))
        await manager.wait_newest_served(60)
        await manager.set_newest(manifest(7, step=4))
        await manager.wait_newest_served(60)
        assert manager.served == manifest(7, step=4)


async def test_waiting_for_weights_that_no_engine_loads_times_out(tmp_path: Path) -> None:
    fake_engines = FakeSyncedEngines(1)
    fake_engines.failing = {1: 1_000_000}
    async with pushing(tmp_path, fake_engines) as (manager, _):
        await manager.set_newest(manifest(1))
        with pytest.raises(InfraError, match="did not load the last weights"):
            await manager.wait_newest_served(0.01)
