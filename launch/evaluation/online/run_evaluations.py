"""Evaluations in the run directory: every attempt, so that any figure can be counted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.scheduler.evaluation import EvaluationAttempt
from launch.evaluation.online.result_store import list_result_files
from launch.run_records.run_directory import RunDirectory
from protocol.events import JsonValue

BEFORE, AFTER = "before", "after"
"""Names of a run's two: of the weights that training begins with, and of its last."""


_FILE = "evaluation-{}.json"


def write_evaluation(directory: RunDirectory, name: str, step: int, attempts: Sequence[EvaluationAttempt]) -> None:
    """``step``: of the weights that were evaluated."""
    value: dict[str, JsonValue] = {"step": step, "attempts": [asdict(attempt) for attempt in attempts]}
    directory.write_json(_FILE.format(name), value)


def read_evaluation(run_dir: Path, name: str, step: int) -> list[EvaluationAttempt] | None:
    """The attempts of the evaluation ``name`` of the weights of ``step``; None when it has not finished."""
    path = run_dir / _FILE.format(name)
    if not path.exists():
        return None
    value = orjson.loads(path.read_bytes())
    return TypeAdapter(list[EvaluationAttempt]).validate_python(value["attempts"]) if value["step"] == step else None


def list_evaluation_files(run_dir: Path) -> dict[str, Path]:
    """Name → file of each of a run's evaluations that has ended, those beside training too.  A file has ``step`` and
    ``attempts``."""
    about = {
        path.name.removeprefix("evaluation-").removesuffix(".json"): path for path in run_dir.glob(_FILE.format("*"))
    }
    return dict(sorted({**about, **list_result_files(run_dir)}.items()))
