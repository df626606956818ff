"""If these fail, a sweep trains again what has ended, loses what was broken off, or compares what began differently."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.run_records.run_directory import RunDirectory
from launch.sweep.definition import SweepFile, build_sweep, parse_axis
from launch.sweep.sweep_loop import SweepLoop
from launch.sweep.sweep_table import PointResult, PointState
from launch.sweep.training_points import TrainingPoints
from protocol.errors import UserError
from tests.support.fakes import fake_cluster
from tests.support.runs.cluster_runs import eventually

PROGRAM = (sys.executable, "-m", "tests.support.fakes.fake_cluster")


class SweptPoints:
    """A sweep in a folder, run by the fake."""

    def __init__(self, folder: Path, *axes: str, **common: Any) -> None:
        sets = {"run.steps": 3, **{key.replace("__", "."): value for key, value in common.items()}}
        self.sweep = build_sweep(SweepFile(), "", sets, [*map(parse_axis, axes)], folder / "s")
        self.runs_folder = folder / "s" / "runs"
        self.runs_folder.mkdir(parents=True, exist_ok=True)
        self.repeat()

    def repeat(self) -> None:
        """Begin the same command again."""
        self.points = TrainingPoints(self.sweep, PROGRAM)
        self.loop = SweepLoop(self.sweep, self.points)

    def behave(self, **starts: list[str]) -> None:
        self.runs_folder.joinpath("behaviour.json").write_text(
            json.dumps({f"s-{name.replace('__', '-')}": each for name, each in starts.items()})
        )

    async def run(self, concurrency: int = 1) -> None:
        unfinished = {PointState.PLANNED, PointState.INTERRUPTED}
        to_run = [point for point in self.sweep.points if self.loop.results[point.name].state in unfinished]
        with RunDirectory.open(self.sweep.folder) as directory:
            await self.loop.run(to_run, concurrency, directory)

    def result(self, name: str) -> PointResult:
        return self.loop.results[name]

    @property
    def states(self) -> dict[str, str]:
        return {name: result.state.value for name, result in self.loop.results.items()}

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.runs_folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def before_from(self) -> dict[str, str]:
        """Run → the run whose evaluation before training it was given."""
        given = {call["run"]: call["sets"].get("evaluation.before_from", '""') for call in self.calls}
        return {run: Path(json.loads(folder)).name for run, folder in given.items()}


async def test_every_point_is_a_separate_run_and_finished_ones_are_not_repeated(tmp_path: Path) -> None:
    """Runs that begin alike are evaluated once before training."""
    swept = SweptPoints(tmp_path, "learner.loss=clip,gspo", "run.seed=0,1")
    await swept.run()
    assert set(swept.states.values()) == {"ended"}
    assert [call["run"] for call in swept.calls] == ["s-clip-seed0", "s-clip-seed1", "s-gspo-seed0", "s-gspo-seed1"]
    assert swept.calls[2]["sets"]["learner.loss"] == '"gspo"'
    assert swept.calls[2]["sets"]["run.steps"] == "3"
    first = swept.result("clip-seed0")
    assert first.commit == fake_cluster.COMMIT
    assert (first.values["before"], first.values["after"], first.values["difference"]) == (0.25, 0.75, 0.5)
    assert (first.values["steps"], first.values["versions"], first.values["staleness_max"]) == (3, 5, 3)
    assert swept.before_from == {
        "s-clip-seed0": "",
        "s-clip-seed1": "",
        "s-gspo-seed0": "s-clip-seed0",
        "s-gspo-seed1": "s-clip-seed1",
    }
    swept.repeat()
    await swept.run()
    assert len(swept.calls) == 4


@pytest.mark.slow
async def test_an_interrupted_point_is_resumed_and_did_not_stop_the_others(tmp_path: Path) -> None:
    swept = SweptPoints(tmp_path, "run.seed=0,1,2")
    swept.behave(seed1=["break"])
    await swept.run()
    assert swept.states == {"seed0": "ended", "seed1": "failed", "seed2": "ended"}
    assert swept.result("seed1").why == "the engine is gone"
    assert swept.result("seed1").advice == "repeat the command to continue it"
    swept.repeat()
    assert swept.states["seed1"] == "interrupted"
    await swept.run()
    assert (swept.calls[-1]["run"], swept.calls[-1]["resumed"]) == ("s-seed1", True)
    assert set(swept.states.values()) == {"ended"}


@pytest.mark.slow
@pytest.mark.parametrize("death", ["refuse", "half"])
async def test_a_point_that_died_before_it_became_a_run_is_started_afresh(tmp_path: Path, death: str) -> None:
    swept = SweptPoints(tmp_path, "run.seed=0")
    swept.behave(seed0=[death])
    await swept.run()
    assert swept.states == {"seed0": "failed"}
    swept.repeat()
    await swept.run()
    assert (swept.states, swept.calls[-1]["resumed"]) == ({"seed0": "ended"}, False)


async def test_a_point_with_failed_checks_is_not_repeated_unless_it_is_removed(tmp_path: Path) -> None:
    swept = SweptPoints(tmp_path, "run.seed=0")
    swept.behave(seed0=["miss"])
    await swept.run()
    assert swept.result("seed0").why == "2 containers were left behind"
    assert f"rm -r {swept.runs_folder / 's-seed0'}" in swept.result("seed0").advice
    swept.repeat()
    assert swept.states == {"seed0": "failed"}
    await swept.run()
    assert len(swept.calls) == 1


def test_only_points_that_differ_in_learning_settings_alone_share_a_start(tmp_path: Path) -> None:
    alike = SweptPoints(tmp_path / "a", "learner.lr=1e-4,2e-4", "staleness.max_staleness=2,4")
    assert len(alike.points.points_starting_alike(alike.sweep.points[0])) == 3
    for axis in ("run.seed=0,1", "agent.max_turns=3,4", "engine.dtype=float32,bfloat16", "warm_start.noise=0.5,0.6"):
        other = SweptPoints(tmp_path / axis, axis)
        assert other.points.points_starting_alike(other.sweep.points[0]) == []


@pytest.mark.slow
async def test_points_that_start_alike_wait_for_the_first_and_others_do_not(tmp_path: Path) -> None:
    swept = SweptPoints(tmp_path, "learner.loss=clip,gspo", "run.seed=0,1")
    swept.behave(clip__seed0=["hold"], clip__seed1=["hold"])
    async with asyncio.TaskGroup() as group:
        group.create_task(swept.run(concurrency=3))
        await asyncio.to_thread(eventually, "two runs", lambda: len(swept.calls) == 2)
        assert {call["run"] for call in swept.calls} == {"s-clip-seed0", "s-clip-seed1"}
        (swept.runs_folder / "go").touch()
    assert set(swept.states.values()) == {"ended"}
    assert all("evaluation.before_from" in call["sets"] for call in swept.calls[2:])


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_point_that_dies_before_training_leaves_the_shared_start_to_the_next(
    tmp_path: Path, concurrency: int
) -> None:
    swept = SweptPoints(tmp_path, "learner.loss=clip,gspo,cispo")
    swept.behave(clip=["half"])
    await swept.run(concurrency)
    assert swept.before_from == {"s-clip": "", "s-gspo": "", "s-cispo": "s-gspo"}
    assert swept.states == {"clip": "failed", "gspo": "ended", "cispo": "ended"}


async def test_a_run_of_another_configuration_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    swept = SweptPoints(tmp_path, "run.seed=0")
    await swept.run()
    with pytest.raises(UserError) as refused:
        SweptPoints(tmp_path, "run.seed=0", learner__lr=1e-5)
    assert "was run with another learner.lr (0.0009, not 1e-05)" in str(refused.value)
    assert "--output FOLDER" in str(refused.value)
    assert f"rm -r {swept.runs_folder / 's-seed0'}" in str(refused.value)


@pytest.mark.slow
async def test_points_can_be_added_to_an_existing_sweep(tmp_path: Path) -> None:
    await SweptPoints(tmp_path, "run.seed=0").run()
    more = SweptPoints(tmp_path, "run.seed=0,1,2")
    await more.run()
    assert [call["run"] for call in more.calls] == ["s-seed0", "s-seed1", "s-seed2"]


async def test_cancelling_ends_the_run_under_way(tmp_path: Path) -> None:
    swept = SweptPoints(tmp_path, "run.seed=0,1")
    swept.behave(seed0=["hold"])

    async def interrupt() -> None:
        await asyncio.to_thread(eventually, "a run", lambda: swept.calls)
        raise KeyError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(swept.run())
            group.create_task(interrupt())

    with pytest.raises(ExceptionGroup):
        await both()
    assert [call["run"] for call in swept.calls] == ["s-seed0"]
    assert swept.states["seed1"] == "planned"
