"""If these fail, learner and engine are on one device at the same time, or one of them waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from actors.engines.messages import WeightLoadError, WeightLoadReport
from launch.control.scheduler_state import SchedulerStateSender
from launch.weight_sync import colocation as turns_module
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_scheduler import FakeScheduler


class ColocatedEngine:
    """Remembers what it was told; ``busy`` times it does not offload its memory."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.busy = 0

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        if self.busy:
            self.busy -= 1
            raise WeightLoadError("it is restarting")
        self.calls.append("offload")

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        pass

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool
    ) -> WeightLoadReport:
        await asyncio.sleep(0)
        self.calls.append(f"load {manifest.version}")
        return WeightLoadReport(version=manifest.version, pause_ms=0.0, load_ms=2.0, prefetch_ms=1.0, offloaded_s=1.0)


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "RETRY_S", 0.001)


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, "/weights", "00", 1, 1)


@contextlib.asynccontextmanager
async def sharing(
    run_dir: Path, *, shared: bool = True, patience_s: float = 30.0
) -> AsyncIterator[tuple[ColocationManager, list[ColocatedEngine]]]:
    """Two engines that serve version 1."""
    engines = [ColocatedEngine(), ColocatedEngine()]
    remotes = [LocalRemote(engine, f"engine-{index}") for index, engine in enumerate(engines)]
    manager = WeightSyncManager(
        engines=remotes,
        report_served=SchedulerStateSender(LocalRemote(FakeScheduler())).set_served_step,
        events=EventLog(run_dir, "driver", "n"),
        update_timeout_s=30.0,
        max_updating_share=1.0,
        max_update_overhead=1.0,
    )
    manager.set_served(manifest(1))
    async with asyncio.TaskGroup() as group:
        pushing = group.create_task(manager.run())
        try:
            async with asyncio.timeout(30):
                yield (
                    ColocationManager(colocated=shared, weight_sync=manager, lease_s=60.0, timeout_s=patience_s),
                    engines,
                )
        finally:
            pushing.cancel()


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_weights_published_during_an_offload_are_loaded_after_it(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (colocation, engines):
        await colocation.switch_to_learner()
        await colocation.weight_sync.set_newest(manifest(2))
        await breathe()
        assert [engine.calls for engine in engines] == [["offload"]] * 2
        assert colocation.weight_sync.served == manifest(1), (
            "its files have to stay, for an engine that comes back without new ones"
        )
        await colocation.switch_to_rollout()
        assert [engine.calls for engine in engines] == [["offload", "load 2"]] * 2
        assert colocation.weight_sync.served == manifest(2)


async def test_after_an_offload_without_new_weights_engines_load_their_old_ones_again(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (colocation, engines):
        for _ in range(2):
            await colocation.switch_to_learner()
            await colocation.switch_to_rollout()
        assert [engine.calls for engine in engines] == [["offload", "load 1"] * 2] * 2


async def test_each_call_to_the_learner_renews_the_offload_lease(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (colocation, engines):
        assert not colocation.learner_active
        await colocation.switch_to_learner()
        await colocation.switch_to_learner()
        assert colocation.learner_active
        assert engines[0].calls == ["offload", "offload"]
        await colocation.switch_to_rollout()
        assert not colocation.learner_active


async def test_the_learner_waits_for_an_engine_that_cannot_offload_yet_and_names_it_once(tmp_path: Path) -> None:
    async with sharing(tmp_path) as (colocation, engines):
        engines[1].busy = 3
        await colocation.switch_to_learner()
        assert [engine.calls for engine in engines] == [["offload"]] * 2
        await colocation.switch_to_rollout()
    events = [orjson.loads(line) for line in (tmp_path / "events" / "driver.jsonl").read_bytes().splitlines()]
    assert [(event["kind"], event["engine"]) for event in events] == [("engine.offload_failed", "engine-1")]


async def test_an_engine_that_never_offloads_ends_the_run(tmp_path: Path) -> None:
    async with sharing(tmp_path, patience_s=0.05) as (colocation, engines):
        engines[0].busy = 1 << 30
        with pytest.raises(InfraError, match="did not offload its memory for the learner"):
            await colocation.switch_to_learner()


async def test_no_engine_starts_during_an_offload(tmp_path: Path) -> None:
    """One whose process died would take memory that is the learner's."""
    async with sharing(tmp_path) as (colocation, _):
        await colocation.switch_to_learner()
        assert colocation.weight_sync.weights_to_start is None
        await colocation.switch_to_rollout()
        assert colocation.weight_sync.weights_to_start == manifest(1)


async def test_on_separate_devices_neither_learner_nor_engines_wait(tmp_path: Path) -> None:
    async with sharing(tmp_path, shared=False) as (colocation, engines):
        await colocation.switch_to_learner()
        assert not colocation.learner_active
        await colocation.weight_sync.set_newest(manifest(2))
        await colocation.weight_sync.wait_newest_served(30)
        assert [engine.calls for engine in engines] == [["load 2"]] * 2
