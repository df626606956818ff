"""Evaluations in the run directory: every attempt, so that any figure can be counted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.evaluation import Attempt
from launch.rundir import RunDirectory
from protocol.events import Json

BEFORE, AFTER = "before", "after"
"""Names of a run's two: of the weights that training begins with, and of its last."""


def write_attempts(directory: RunDirectory, name: str, step: int, attempts: Sequence[Attempt]) -> None:
    """``step``: of the weights that were evaluated."""
    value: dict[str, Json] = {"step": step, "attempts": [asdict(attempt) for attempt in attempts]}
    directory.write_json(f"evaluation-{name}.json", value)


def read_attempts(run_dir: Path, name: str, step: int) -> list[Attempt] | None:
    """The attempts of the evaluation ``name`` of the weights of ``step``; None when it has not finished."""
    path = run_dir / f"evaluation-{name}.json"
    if not path.exists():
        return None
    value = orjson.loads(path.read_bytes())
    return TypeAdapter(list[Attempt]).validate_python(value["attempts"]) if value["step"] == step else None
