"""If these fail, a sweep of evaluations evaluates something else than one by one would, or repeats what has ended."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config.loader import Toml
from launch.sweep.axes import parse_axis
from launch.sweep.definition import SweepFile, SweepKind, build_sweep
from launch.sweep.evaluation_points import EvaluationPoints, configure_evaluations
from launch.sweep.sweep_folder import open_sweep_folder
from launch.sweep.sweep_table import PointState
from protocol.errors import UserError
from sandbox.tasks.formats.generated.generator import training_tasks
from tests.support.task_files import write_tasks

PROGRAM = (sys.executable, "-m", "tests.support.fake_evaluate")
URL = "http://127.0.0.1:9/v1"


async def swept(folder: Path, *axes: str, fails: dict[str, str] | None = None) -> EvaluationPoints:
    if not (folder / "tasks").exists():
        write_tasks(training_tasks(3, 2), "terminal_bench", folder / "tasks")
        (folder / "out" / "evaluations").mkdir(parents=True)
        (folder / "out" / "sweep.json").write_text('{"kind": "evaluate", "recipe": "demo"}')
    (folder / "out" / "evaluations" / "fails.json").write_text(json.dumps(fails or {}))
    common: dict[str, Toml] = {"tasks": str(folder / "tasks"), "attempts": 1}
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), common, [parse_axis(axis) for axis in axes])
    found = EvaluationPoints(sweep, configure_evaluations(sweep, folder / "out"), folder / "out", PROGRAM)
    found.check_existing()
    waiting = [p for p in sweep.points if found.read_result(p).state in {PointState.PLANNED, PointState.INTERRUPTED}]
    with open_sweep_folder(folder / "out", sweep) as directory:
        await found.run_points(waiting, 2, directory)
    return found


def calls(folder: Path) -> list[str]:
    return (folder / "out" / "evaluations" / "calls.txt").read_text().split()


def states(found: EvaluationPoints) -> dict[str, str]:
    return {point.name: found.read_result(point).state.value for point in found.sweep.points}


async def test_every_point_is_an_evaluation_and_what_has_ended_is_not_repeated(tmp_path: Path) -> None:
    axes = ("oracle=true", "seed=0,1", "agent.max_turns=2,3")
    found = await swept(tmp_path, *axes)
    assert set(states(found).values()) == {"ended"}
    assert found.sweep.seed_axis == "seed"
    values = found.read_result(found.sweep.points[0]).values
    assert (values["pass_at_1"], values["graded"], values["errors"]) == (1.0, 2, 0)
    await swept(tmp_path, *axes)
    assert len(calls(tmp_path)) == 4


async def test_a_point_that_fails_stops_no_other_and_is_continued(tmp_path: Path) -> None:
    axes = (f"model={URL}", "model-name=v1", "temperature=0.5,1.0")
    found = await swept(tmp_path, *axes, fails={"out-127.0.0.1_9_v1-v1-temperature0.5": "fail"})
    first, second = found.sweep.points
    assert (found.read_result(first).why, found.read_result(second).state) == (
        "the server does not come up", PointState.ENDED
    )  # fmt: skip
    found = await swept(tmp_path, *axes)
    assert set(states(found).values()) == {"ended"}
    assert len(calls(tmp_path)) == 3


async def test_attempts_without_a_verdict_are_run_again_when_asked(tmp_path: Path) -> None:
    found = await swept(tmp_path, "oracle=true", fails={"out-oracle_true": "lose"})
    (point,) = found.sweep.points
    assert found.read_result(point).why == "2 attempts have no verdict"
    assert "--set retry-errors=true" in found.retry_advice(point)


@pytest.mark.parametrize("ids", ["3-4,7", ["3-4", "7"]])
def test_every_point_takes_the_tasks_that_are_asked_for(tmp_path: Path, ids: Toml) -> None:
    """ART's held-out tasks are asked for by their numbers, of each model alike."""
    tasks = [replace(task, id=f"swe-{number}") for number, task in enumerate(training_tasks(3, 8))]
    write_tasks(tasks, "terminal_bench", tmp_path / "tasks")
    common: dict[str, Toml] = {"tasks": str(tmp_path / "tasks"), "noop": True, "task-ids": ids}
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), common, [parse_axis("seed=0,1")])
    for evaluation in configure_evaluations(sweep, tmp_path).values():
        assert list(evaluation.selection.tasks) == ["swe-3", "swe-4", "swe-7"]


def test_a_sweep_without_a_solver_is_refused(tmp_path: Path) -> None:
    sweep = build_sweep("s", SweepFile(kind=SweepKind.EVALUATE), {"tasks": "/t"}, [parse_axis("temperature=0.5,1.0")])
    with pytest.raises(UserError, match="--set model=PATH"):
        configure_evaluations(sweep, tmp_path)
