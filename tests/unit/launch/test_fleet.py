"""If these fail, what a dead worker left is not swept, nobody knows which process did not stop, or the tokens of a dead
engine are not counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

import pytest

from actors.engines.engine import Engine
from actors.engines.messages import EngineStartError, EngineStatistics
from actors.remote import Remote, RemoteError
from actors.worker import Worker
from launch import fleet
from launch.config import load_recipe
from launch.fleet import Fleet
from launch.prepare import Prepared
from launch.rundir import RunDirectory
from protocol.events import EventLog
from protocol.weights import NO_VERSION, Version, WeightManifest
from sandbox.sweep import SETTLED_S


@contextmanager
def a_fleet(folder: Path) -> Generator[Fleet]:
    with RunDirectory.create(folder, "demo", "mine") as directory:
        prepared = Prepared(folder, warm=True, tasks={}, training=(), held_out=())
        events = EventLog(directory.path, "driver", "node-0")
        yield Fleet(load_recipe("demo"), directory, prepared, [], events)
        events.close()


class FakeWorker:
    """Its process dies once in the middle of its work."""

    def __init__(self, deaths: int) -> None:
        self.name, self._deaths = "mine/1/worker-0-0", deaths

    async def call(self, *_: object) -> None:
        if self._deaths:
            self._deaths -= 1
            raise RemoteError(self.name, "its process died")


async def test_a_worker_that_is_dead_when_training_ends_does_not_end_the_run(tmp_path: Path) -> None:
    with a_fleet(tmp_path) as made:
        made.workers = (cast("Remote[Worker]", FakeWorker(deaths=1)),)
        await made.cancel_training()


class Stopping:
    """Needs its time to stop."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self._seconds = name, seconds

    async def call(self, *_: object) -> None:
        await asyncio.sleep(self._seconds)


class Counting:
    """Says what it has sampled; None while its process is being restarted."""

    def __init__(self, name: str, says: list[int | None], hangs_at: int = -1) -> None:
        self.name, self._says, self._hangs_at, self._asked = name, says, hangs_at, 0

    async def call(self, *_: object) -> EngineStatistics:
        said, self._asked = self._says[self._asked], self._asked + 1
        if self._asked == self._hangs_at:
            await asyncio.sleep(60)
        if said is None:
            raise RemoteError(self.name, "its process died")
        return EngineStatistics(sampled_tokens=said)


class Starting:
    """An engine whose server does not come up at so many tries."""

    def __init__(self, failures: int) -> None:
        self.name, self.tries, self._failures = "mine/1/engine-0", 0, failures

    async def call(self, *_: object) -> None:
        self.tries += 1
        if self.tries <= self._failures:
            raise EngineStartError("it was killed")


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (1, 2), (9, 2)])
async def test_a_server_that_does_not_come_up_is_started_once_more(tmp_path: Path, failures: int, tries: int) -> None:
    engine = Starting(failures)
    with a_fleet(tmp_path) as made:
        made.engines = (cast("Remote[Engine]", engine),)
        with pytest.RaisesGroup(EngineStartError) if failures > 1 else nullcontext():
            await made.start_engines(WeightManifest(Version(0), 0, NO_VERSION, "", "", 0, 0))
    assert engine.tries == tries


@pytest.mark.parametrize("deaths", [0, 1])
async def test_the_end_sweeps_for_as_long_as_the_daemon_may_work_for_a_dead_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    swept: list[tuple[str, float]] = []

    async def sweep_run(run_id: str, for_s: float) -> int:
        swept.append((run_id, for_s))
        return 0

    monkeypatch.setattr(fleet, "sweep_run", sweep_run)
    monkeypatch.setattr(fleet, "_RETRY_S", 0.0)
    with a_fleet(tmp_path) as made:
        await made._keep_working(cast("Remote[Worker]", FakeWorker(deaths)))
        await made._sweep(made._settle_s)
    assert [run_id for run_id, _ in swept] == ["mine"] * deaths
    assert all(0 < for_s <= SETTLED_S for _, for_s in swept)


async def test_an_actor_that_does_not_stop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "STOP_S", 0.01)
    hangs, stops = (cast("Remote[Worker]", Stopping(name, seconds)) for name, seconds in (("hangs", 60), ("stops", 0)))
    with a_fleet(tmp_path) as made:
        assert await made._each_stop([hangs, stops], Worker.stop) == [hangs]
    (said,) = (tmp_path / "mine" / "events" / "driver.jsonl").read_text().splitlines()
    assert json.loads(said)["why"] == "hangs did not answer within 0.01 s"


async def test_sampled_tokens_are_summed_over_the_lives_of_engines_and_nobody_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_ANSWER_S", 0.01)
    well, often = Counting("engine-0", [30, 50]), Counting("engine-1", [20, 5, None, 7, 9], hangs_at=4)
    with a_fleet(tmp_path) as made:
        made.engines = (cast("Remote[Engine]", often),)
        assert [await made.engine_tokens() for _ in range(5)] == [20, 25, 25, 25, 29], "it began anew at 5"
        made.engines = (cast("Remote[Engine]", well),)
        assert [await made.engine_tokens() for _ in range(2)] == [29 + 30, 29 + 50]
