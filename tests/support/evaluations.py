"""Evaluations' folders, as launch.evaluate leaves them, without an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from launch.config import RunConfig
from launch.evaluation.attempts import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptUsage
from launch.evaluation.results.evaluation_folder import TERMINALS_FOLDER, open_evaluation_folder
from launch.evaluation.results.evaluation_settings import build_evaluation_settings, write_evaluation_settings
from launch.trajectory_reader.verdict import AttemptVerdict
from protocol.events import JsonValue
from protocol.run_directory.terminal_recordings import CastWriter
from protocol.trajectory import EpisodeStatus, TestResult
from tests.support.recorded_trajectories import call

WHAT: dict[str, JsonValue] = {
    "agent": "url",
    "model": "http://h/v1",
    "model name": "v1",
    "temperature": 1.0,
    "greedy": False,
    "seed": 0,
    "tasks": "tasks",
    "tasks' checksum": "abc",
    "recipe": {"agent.kind": "bash", "agent.max_turns": 4},
}


def verdict(*, passed: bool) -> AttemptVerdict:
    return AttemptVerdict(passed, float(passed), float(passed), EpisodeStatus.COMPLETED)


def write_evaluation(
    folder: Path, attempts: Mapping[str, Sequence[bool | None]], *, recorded: bool = True, **what: JsonValue
) -> Path:
    """Task → whether each attempt passed; None for one that infrastructure failed."""
    with open_evaluation_folder(
        folder, {**WHAT, **{key.replace("_", " "): value for key, value in what.items()}}
    ) as made:
        for task, each in attempts.items():
            for number, passed in enumerate(each):
                failure = (
                    AttemptError(AttemptStage.RESET, "SandboxStartError", "no sandbox") if passed is None else None
                )
                graded = verdict(passed=passed) if passed is not None else None
                made.add_record(AttemptRecord(task, number, "f", 1.0, graded, failure, AttemptUsage(2, 2, 1, 0, 40, 7)))
                if recorded and passed is not None:
                    record(folder, AttemptId(task, number), f"{task} {number} {passed}")
    return folder


def record(folder: Path, attempt: AttemptId, output: str) -> None:
    with CastWriter.open(folder / TERMINALS_FOLDER / f"{attempt.uid}.cast", 80, 24, attempt.task) as cast:
        cast.record_command("ls")
        cast.record_output(output)


def write_saved(folder: Path, run: RunConfig) -> Path:
    """With the trajectory of one attempt, ``a/0``, at an agent of Hermes calls that thinks; it was tried twice."""
    opening = [{"role": "system", "content": "sys"}, {"role": "user", "content": "Do a."}]
    looks = {"role": "assistant", "content": f"<think>\nhm\n</think>\n\nI look.\n{call('ls')}"}
    with open_evaluation_folder(folder, WHAT) as made:
        write_evaluation_settings(
            folder, build_evaluation_settings(run, str(folder.parent / "tasks"), folder.parent / "datasets.toml")
        )
        for last in ("nothing", "done"):
            ends = {"role": "assistant", "content": f"<think>\nok\n</think>\n\n{last}"}
            told = {
                "task": "a",
                "number": 0,
                "messages": [*opening, looks, {"role": "tool", "content": "a.txt"}, ends],
                "observed": [{"tool": "shell_exec", "exit_code": 0, "ms": 1.0}, None],
                "segments": [],
            }
            made.add_trajectory(cast("dict[str, JsonValue]", told))
        graded = AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED, {"tests": 1.0}, (TestResult("one", True),))
        made.add_record(AttemptRecord("a", 0, "f", 1.0, graded, effort=AttemptUsage(2, 1, 1, 0, 40, 14)))
    return folder
