"""Evaluations' folders, as launch.evaluate leaves them, without an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.evaluate.attempts import AttemptId, Effort, Failure, Record, Stage, Verdict
from launch.evaluate.folder import TERMINALS, opened
from protocol.events import Json
from protocol.recordings import CastWriter
from protocol.trajectory import Status

WHAT: dict[str, Json] = {
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


def verdict(*, passed: bool) -> Verdict:
    return Verdict(passed, float(passed), float(passed), Status.COMPLETED)


def write_evaluation(
    folder: Path, attempts: Mapping[str, Sequence[bool | None]], *, recorded: bool = True, **what: Json
) -> Path:
    """Task → whether each attempt passed; None for one that infrastructure failed."""
    with opened(folder, {**WHAT, **{key.replace("_", " "): value for key, value in what.items()}}) as made:
        for task, each in attempts.items():
            for number, passed in enumerate(each):
                failure = Failure(Stage.RESET, "SandboxStartError", "no sandbox") if passed is None else None
                graded = verdict(passed=passed) if passed is not None else None
                made.add(Record(task, number, "f", 1.0, graded, failure, Effort(2, 2, 1, 0, 40, 7)))
                if recorded and passed is not None:
                    record(folder, AttemptId(task, number), f"{task} {number} {passed}")
    return folder


def record(folder: Path, attempt: AttemptId, output: str) -> None:
    with CastWriter.open(folder / TERMINALS / f"{attempt.uid}.cast", 80, 24, attempt.task) as cast:
        cast.prompt_command("ls")
        cast.output(output)
