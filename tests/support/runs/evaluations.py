"""Folders of evaluations, written without running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from launch.config import RunConfig
from launch.evaluation.held_out.evaluation_store import SOLVER, write_run_evaluation
from launch.evaluation.results.evaluation_folder import TERMINALS_FOLDER, EvaluationSpec, open_evaluation_folder
from launch.evaluation.results.evaluation_settings import build_evaluation_settings, write_evaluation_settings
from protocol.evaluation import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptUsage, AttemptVerdict
from protocol.events import JsonValue
from protocol.run_directory.terminal_recordings import CastWriter
from protocol.trajectory import EpisodeStatus, InfraFailure, TestResult
from tests.support.runs.recorded_trajectories import tool_call

SPEC = EvaluationSpec(
    solver="url",
    model="http://h/v1",
    model_name="v1",
    tasks="tasks",
    tasks_checksum="abc",
    recipe={"agent.kind": "bash", "agent.max_turns": 4},
)


def make_verdict(*, passed: bool) -> AttemptVerdict:
    return AttemptVerdict(passed, float(passed), float(passed), EpisodeStatus.COMPLETED)


def write_evaluation(
    folder: Path, attempts: Mapping[str, Sequence[bool | None]], *, recorded: bool = True, **spec: Any
) -> Path:
    """Task → whether each attempt passed; None for one that infrastructure failed."""
    with open_evaluation_folder(folder, replace(SPEC, **spec)) as made:
        for task, each in attempts.items():
            for number, passed in enumerate(each):
                failure = (
                    AttemptError(AttemptStage.RESET, InfraFailure.SANDBOX_START, "no sandbox")
                    if passed is None
                    else None
                )
                graded = make_verdict(passed=passed) if passed is not None else None
                attempt = AttemptRecord(task, number, "f", 1.0, graded, failure, AttemptUsage(2, 2, 1, 0, 40, 7))
                made.add_record(replace(attempt, recording=attempt.attempt_id.uid))
                if recorded and passed is not None:
                    record_terminal(folder, AttemptId(task, number), f"{task} {number} {passed}")
    return folder


def write_run_attempts(run_dir: Path, name: str, attempts: Iterable[AttemptRecord], step: int = 0) -> None:
    """Write an evaluation of a run."""
    write_run_evaluation(run_dir, EvaluationSpec(solver=SOLVER, model=run_dir.name, name=name, step=step), attempts)


def record_terminal(folder: Path, attempt: AttemptId, output: str) -> None:
    with CastWriter.open(folder / TERMINALS_FOLDER / f"{attempt.uid}.cast", 80, 24, attempt.task) as cast:
        cast.record_command("ls")
        cast.record_output(output)


def write_evaluation_with_trajectory(folder: Path, run: RunConfig) -> Path:
    """Write an evaluation with one saved trajectory, ``a/0``: an agent of Hermes calls that thinks, in two tries."""
    opening = [{"role": "system", "content": "sys"}, {"role": "user", "content": "Do a."}]
    looks = {"role": "assistant", "content": f"<think>\nhm\n</think>\n\nI look.\n{tool_call('ls')}"}
    with open_evaluation_folder(folder, SPEC) as made:
        write_evaluation_settings(
            folder, build_evaluation_settings(run, str(folder.parent / "tasks"), folder.parent / "datasets.toml")
        )
        for last in ("nothing", "done"):
            ends = {"role": "assistant", "content": f"<think>\nok\n</think>\n\n{last}"}
            trajectory = {
                "task": "a",
                "number": 0,
                "messages": [*opening, looks, {"role": "tool", "content": "a.txt"}, ends],
                "observed": [{"tool": "shell_exec", "exit_code": 0, "ms": 1.0}, None],
                "segments": [],
            }
            made.add_trajectory(cast("dict[str, JsonValue]", trajectory))
        graded = AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED, {"tests": 1.0}, (TestResult("one", True),))
        made.add_record(AttemptRecord("a", 0, "f", 1.0, graded, usage=AttemptUsage(2, 1, 1, 0, 40, 14)))
    return folder
