"""If these fail, a sweep of evaluations evaluates something else than one by one would, or repeats what has ended."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config.loader import Toml
from launch.run_records.run_directory import RunDirectory
from launch.sweep.definition import Settings, SweepFile, SweepKind, build_sweep, parse_axis
from launch.sweep.evaluation_points import EvaluationPoints
from launch.sweep.sweep_loop import SweepLoop
from launch.sweep.sweep_table import PointState
from protocol.errors import UserError
from sandbox.tasks.formats.generated.generator import training_tasks
from tests.support.tasks.task_files import write_tasks

PROGRAM = (sys.executable, "-m", "tests.support.fakes.fake_evaluate")
URL = "http://127.0.0.1:9/v1"
FILE = SweepFile(kind=SweepKind.EVALUATE)


async def swept(
    folder: Path, *axes: str, fails: dict[str, str] | None = None, sets: Settings | None = None
) -> SweepLoop:
    """Run the points that have not ended, as the command does."""
    if not (folder / "tasks").exists():
        write_tasks(training_tasks(3, 2), "terminal_bench", folder / "tasks")
        (folder / "out" / "evaluations").mkdir(parents=True)
    (folder / "out" / "evaluations" / "fails.json").write_text(json.dumps(fails or {}))
    common: Settings = {"tasks": str(folder / "tasks"), "attempts": 1, **(sets or {})}
    sweep = build_sweep(FILE, "", common, [*map(parse_axis, axes)], folder / "out")
    loop = SweepLoop(sweep, EvaluationPoints(sweep, PROGRAM))
    unfinished = {PointState.PLANNED, PointState.INTERRUPTED}
    with RunDirectory.open(folder / "out") as directory:
        await loop.run([p for p in sweep.points if loop.results[p.name].state in unfinished], 2, directory)
    return loop


def calls(folder: Path) -> list[str]:
    return (folder / "out" / "evaluations" / "calls.txt").read_text().split()


def states(loop: SweepLoop) -> list[str]:
    return [result.state.value for result in loop.results.values()]


async def test_every_point_is_an_evaluation_and_finished_ones_are_not_repeated(tmp_path: Path) -> None:
    axes = ("oracle=true", "seed=0,1", "agent.max_turns=2,3")
    loop = await swept(tmp_path, *axes)
    assert states(loop) == ["ended"] * 4
    assert loop.sweep.seed_axis == "seed"
    values = loop.results[loop.sweep.points[0].name].values
    assert (values["pass_at_1"], values["pass_at_most"], values["graded"], values["errors"]) == (1.0, 1.0, 2, 0)
    await swept(tmp_path, *axes)
    assert len(calls(tmp_path)) == 4


@pytest.mark.slow
async def test_a_point_that_fails_stops_no_other_and_is_continued(tmp_path: Path) -> None:
    axes = (f"model={URL}", "model-name=v1", "temperature=0.5,1.0")
    loop = await swept(tmp_path, *axes, fails={"out-127.0.0.1_9_v1-v1-temperature0.5": "fail"})
    assert states(loop) == ["failed", "ended"]
    assert loop.results["127.0.0.1_9_v1-v1-temperature0.5"].why == "the server does not come up"
    assert states(await swept(tmp_path, *axes)) == ["ended", "ended"]
    assert len(calls(tmp_path)) == 3


@pytest.mark.slow
async def test_attempts_without_a_verdict_are_run_again_when_asked(tmp_path: Path) -> None:
    loop = await swept(tmp_path, "oracle=true", fails={"out-oracle_true": "lose"})
    assert loop.results["oracle_true"].why == "2 attempts have no verdict"
    assert "--set retry-errors=true" in loop.results["oracle_true"].advice
    assert states(await swept(tmp_path, "oracle=true")) == ["failed"]
    assert states(await swept(tmp_path, "oracle=true", sets={"retry-errors": True})) == ["ended"]
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize("ids", ["3-4,7", ["3-4", "7"]])
def test_every_point_takes_the_tasks_that_are_asked_for(tmp_path: Path, ids: Toml) -> None:
    """ART's held-out tasks are asked for by their numbers, of each model alike."""
    tasks = [replace(task, id=f"swe-{number}") for number, task in enumerate(training_tasks(3, 8))]
    write_tasks(tasks, "terminal_bench", tmp_path / "tasks")
    common: Settings = {"tasks": str(tmp_path / "tasks"), "noop": True, "task-ids": ids}
    for evaluation in EvaluationPoints(build_sweep(FILE, "", common, [parse_axis("seed=0,1")])).evaluations.values():
        assert list(evaluation.selection.tasks) == ["swe-3", "swe-4", "swe-7"]


@pytest.mark.parametrize(
    ("common", "says"),
    [({"tasks": "/t"}, "--set model=PATH"), ({"tasks": "/t", "noop": True}, "point temperature0.5: '/t'")],
)
def test_points_that_cannot_be_evaluated_are_refused(common: Settings, says: str) -> None:
    with pytest.raises(UserError, match=says):
        EvaluationPoints(build_sweep(FILE, "", common, [parse_axis("temperature=0.5,1.0")]))
