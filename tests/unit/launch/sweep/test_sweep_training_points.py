"""If these fail, a sweep trains again what has ended, loses what was broken off, or compares what began differently."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.sweep.axes import SweepPoint, parse_axis
from launch.sweep.definition import Sweep, SweepFile, build_sweep
from launch.sweep.sweep_folder import open_sweep_folder
from launch.sweep.sweep_table import PointResult, PointState
from launch.sweep.training_points import TrainingPoints, configure_runs
from protocol.errors import UserError
from tests.support import fake_cluster
from tests.support.cluster_runs import eventually

PROGRAM = (sys.executable, "-m", "tests.support.fake_cluster")
COMMON = {"run.steps": 3}


class Swept:
    """A sweep in a folder, run by the fake."""

    def __init__(self, folder: Path, *axes: str, **common: Any) -> None:
        self.folder = folder
        values = {**COMMON, **{key.replace("__", "."): value for key, value in common.items()}}
        self.sweep = build_sweep("s", SweepFile(), values, [parse_axis(axis) for axis in axes])
        (folder / "s" / "runs").mkdir(parents=True, exist_ok=True)
        self.runs = self.anew()

    def anew(self) -> TrainingPoints:
        """As the same command has them the next time."""
        self.runs = TrainingPoints(self.sweep, configure_runs(self.sweep), self.folder / "s", PROGRAM)
        return self.runs

    @property
    def runs_folder(self) -> Path:
        return self.folder / "s" / "runs"

    def behave(self, **starts: list[str]) -> None:
        self.runs_folder.joinpath("behaviour.json").write_text(
            json.dumps({f"s-{name.replace('__', '-')}": each for name, each in starts.items()})
        )

    async def run(self, at_once: int = 1) -> None:
        (self.folder / "s" / "sweep.json").write_text('{"kind": "train", "recipe": "demo"}')
        points = [p for p in self.sweep.points if self.outcome(p).state in {PointState.PLANNED, PointState.INTERRUPTED}]
        self.runs.check_existing()
        with open_sweep_folder(self.folder / "s", self.sweep) as directory:
            await self.runs.run_points(points, at_once, directory)

    def outcome(self, point: SweepPoint) -> PointResult:
        return self.runs.read_result(point)

    @property
    def states(self) -> dict[str, str]:
        return {point.name: self.outcome(point).state.value for point in self.sweep.points}

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.runs_folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_every_point_is_a_run_of_its_own_with_what_it_sets(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "learner.loss=clip,gspo", "run.seed=0,1")
    await swept.run()
    assert set(swept.states.values()) == {"ended"}
    assert [call["run"] for call in swept.calls] == ["s-clip-seed0", "s-clip-seed1", "s-gspo-seed0", "s-gspo-seed1"]
    assert swept.calls[2]["sets"]["learner.loss"] == '"gspo"'
    assert swept.calls[2]["sets"]["run.steps"] == "3"
    first = swept.outcome(swept.sweep.points[0])
    assert first.commit == fake_cluster.COMMIT
    assert first.values["before"] == 0.25
    assert first.values["after"] == 0.75
    assert first.values["difference"] == 0.5
    assert (first.values["steps"], first.values["versions"], first.values["staleness_max"]) == (3, 5, 3)


async def test_the_same_again_runs_nothing(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "run.seed=0,1")
    await swept.run()
    done = len(swept.calls)
    swept.anew()
    await swept.run()
    assert len(swept.calls) == done


async def test_one_that_was_broken_off_is_resumed_and_the_others_were_not_stopped(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "run.seed=0,1,2")
    swept.behave(seed1=["break"])
    await swept.run()
    assert swept.states == {"seed0": "ended", "seed1": "failed", "seed2": "ended"}
    failed = swept.outcome(swept.sweep.points[1])
    assert failed.why == "the engine is gone"
    assert swept.runs.retry_advice(swept.sweep.points[1]) == "repeat the command to continue it"
    swept.anew()
    assert swept.states["seed1"] == "interrupted"
    await swept.run()
    assert swept.calls[-1]["run"] == "s-seed1"
    assert swept.calls[-1]["resumed"]
    assert set(swept.states.values()) == {"ended"}


@pytest.mark.parametrize("death", ["refuse", "half"])
async def test_one_that_never_was_a_run_is_begun_anew(tmp_path: Path, death: str) -> None:
    swept = Swept(tmp_path, "run.seed=0")
    swept.behave(seed0=[death])
    await swept.run()
    assert swept.states == {"seed0": "failed"}
    swept.anew()
    await swept.run()
    assert (swept.states, swept.calls[-1]["resumed"]) == ({"seed0": "ended"}, False)


async def test_one_whose_checks_failed_is_not_run_again_unless_it_is_removed(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "run.seed=0")
    swept.behave(seed0=["miss"])
    await swept.run()
    (point,) = swept.sweep.points
    assert swept.outcome(point).why == "2 containers were left behind"
    assert f"rm -r {swept.runs.point_folder(point)}" in swept.runs.retry_advice(point)
    swept.anew()
    assert swept.states == {"seed0": "failed"}
    await swept.run()
    assert len(swept.calls) == 1


async def test_what_begins_alike_is_evaluated_once_before_training(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "learner.loss=clip,gspo,cispo", "run.seed=0,1")
    await swept.run()
    sources = {call["run"]: call["sets"].get("evaluation.before_from", "") for call in swept.calls}
    assert {run: Path(json.loads(source)).name if source else "" for run, source in sources.items()} == {
        "s-clip-seed0": "",
        "s-clip-seed1": "",
        "s-gspo-seed0": "s-clip-seed0",
        "s-gspo-seed1": "s-clip-seed1",
        "s-cispo-seed0": "s-clip-seed0",
        "s-cispo-seed1": "s-clip-seed1",
    }
    assert [swept.outcome(point).values["difference"] for point in swept.sweep.points] == [0.5] * 6
    swept.anew()
    swept.runs.check_existing()


def test_what_is_not_only_about_learning_begins_otherwise(tmp_path: Path) -> None:
    alike = Swept(tmp_path / "a", "learner.lr=1e-4,2e-4", "staleness.max_staleness=2,4")
    assert len(alike.runs.points_starting_alike(alike.sweep.points[0])) == 3
    for axis in ("run.seed=0,1", "agent.max_turns=3,4", "engine.dtype=float32,bfloat16", "warm_start.noise=0.5,0.6"):
        other = Swept(tmp_path / axis, axis)
        assert other.runs.points_starting_alike(other.sweep.points[0]) == []


async def test_what_begins_alike_waits_for_the_first_and_the_others_do_not(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "learner.loss=clip,gspo", "run.seed=0,1")
    swept.behave(clip__seed0=["hold"], clip__seed1=["hold"])
    async with asyncio.TaskGroup() as group:
        group.create_task(swept.run(at_once=3))
        await asyncio.to_thread(eventually, "two runs", lambda: len(swept.calls) == 2)
        assert {call["run"] for call in swept.calls} == {"s-clip-seed0", "s-clip-seed1"}
        (swept.runs_folder / "go").touch()
    assert set(swept.states.values()) == {"ended"}
    assert all("evaluation.before_from" in call["sets"] for call in swept.calls[2:])


async def test_one_that_dies_before_it_trains_leaves_the_start_to_the_next(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "learner.loss=clip,gspo,cispo")
    swept.behave(clip=["half"])
    await swept.run()
    assert ["evaluation.before_from" in call["sets"] for call in swept.calls] == [False, False, True]
    assert swept.states == {"clip": "failed", "gspo": "ended", "cispo": "ended"}


async def test_a_run_of_another_configuration_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    await Swept(tmp_path, "run.seed=0").run()
    other = Swept(tmp_path, "run.seed=0", learner__lr=1e-5)
    with pytest.raises(UserError) as refused:
        other.runs.check_existing()
    assert "was run with another learner.lr (0.0009, not 1e-05)" in str(refused.value)
    assert "--output FOLDER" in str(refused.value)
    assert f"rm -r {other.runs_folder / 's-seed0'}" in str(refused.value)


async def test_more_points_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    await Swept(tmp_path, "run.seed=0").run()
    more = Swept(tmp_path, "run.seed=0,1,2")
    await more.run()
    assert [call["run"] for call in more.calls] == ["s-seed0", "s-seed1", "s-seed2"]


async def test_cancelling_ends_the_run_under_way(tmp_path: Path) -> None:
    swept = Swept(tmp_path, "run.seed=0,1")
    swept.behave(seed0=["hold"])

    async def interrupted() -> None:
        await asyncio.to_thread(eventually, "a run", lambda: swept.calls)
        raise KeyError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(swept.run())
            group.create_task(interrupted())

    with pytest.raises(ExceptionGroup):
        await both()
    assert swept.runs.running == {}
    assert [call["run"] for call in swept.calls] == ["s-seed0"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    sweep: Sweep = build_sweep("s", SweepFile(), {}, [parse_axis("run.seed=0")])
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="something other than a sweep"), open_sweep_folder(tmp_path, sweep):
        pass
    with (
        open_sweep_folder(tmp_path / "s", sweep),
        pytest.raises(UserError, match="in use by process"),
        open_sweep_folder(tmp_path / "s", sweep),
    ):
        pass
    with (
        pytest.raises(UserError, match=r"another recipe \(demo, not other\)"),
        open_sweep_folder(tmp_path / "s", replace(sweep, recipe="other")),
    ):
        pass
