"""Evaluations in the run directory: every attempt, so that any figure can be counted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.evaluation import Attempt
from launch.rundir import RunDirectory


def write_attempts(directory: RunDirectory, name: str, attempts: Sequence[Attempt]) -> None:
    directory.write_json(f"evaluation-{name}.json", {"attempts": [asdict(attempt) for attempt in attempts]})


def read_attempts(run_dir: Path, name: str) -> list[Attempt] | None:
    """The attempts of a finished evaluation; None when it has not finished."""
    path = run_dir / f"evaluation-{name}.json"
    if not path.exists():
        return None
    return TypeAdapter(list[Attempt]).validate_python(orjson.loads(path.read_bytes())["attempts"])
