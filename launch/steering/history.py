"""What was changed while a run went on, in its record: ``config.json`` has the values that hold, and their history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import orjson
from pydantic import TypeAdapter

from launch.config import RunConfig
from launch.rundir import CONFIG_FILE, config_values, refused, write_json
from launch.steering.requests import Request
from launch.steering.tunable import Change, Value
from protocol.events import Json

RETUNED = "retuned"
"""The list in the record."""


@dataclass(frozen=True, slots=True)
class Retuned:
    """One change."""

    attempt: int
    first_step: int
    """The first that was taken with it."""
    key: str
    before: Value
    after: Value
    t: float
    by: str
    reason: str


def record_changes(
    run_dir: Path, config: RunConfig, changed: Sequence[Change], request: Request, *, first_step: int
) -> None:
    """Raises RunDirectoryError."""
    path = run_dir / CONFIG_FILE
    try:
        record: dict[str, Json] = orjson.loads(path.read_bytes())
        attempt = cast("int", record["attempt"])
        new = [
            Retuned(attempt, first_step, each.key, each.before, each.after, request.t, request.by, request.reason)
            for each in changed
        ]
        record["config"] = cast("Json", config_values(config))
        record[RETUNED] = [*cast("list[Json]", record.get(RETUNED, [])), *(cast("Json", asdict(each)) for each in new)]
        write_json(path, record)
    except OSError as error:
        raise refused(run_dir, error) from error


def read_changes(run_dir: Path) -> list[Retuned]:
    """In the order of time; none where there is no record that could be read."""
    try:
        record: dict[str, Json] = orjson.loads((run_dir / CONFIG_FILE).read_bytes())
        return TypeAdapter(list[Retuned]).validate_python(record.get(RETUNED, []))
    except (OSError, ValueError, AttributeError):
        return []
