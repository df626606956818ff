"""The changes that were made to a run's configuration while it went on; ``config.json`` has the current values and this
history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import orjson
from pydantic import TypeAdapter

from launch.config import RunConfig
from launch.run_records.retunable_keys import KeyChange, RetunableValue
from launch.run_records.run_directory import write_json
from launch.run_records.run_lock import directory_error
from launch.run_records.stored_config import config_tables
from protocol.events import JsonValue
from protocol.run_directory.layout import CONFIG_FILE

CHANGES_KEY = "config_changes"
"""Key of the history in the record."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    start_number: int
    first_step: int
    """First step that was taken with the new value."""
    key: str
    before: RetunableValue
    after: RetunableValue
    t: float
    by: str
    reason: str


def record_changes(
    run_dir: Path,
    config: RunConfig,
    changed: Sequence[KeyChange],
    *,
    first_step: int,
    t: float,
    by: str,
    reason: str,
) -> None:
    """Write the new configuration and its changes to the run's record.  ``t`` is the Unix time of the request.  Raises
    RunDirectoryError."""
    path = run_dir / CONFIG_FILE
    try:
        record: dict[str, JsonValue] = orjson.loads(path.read_bytes())
        start = cast("int", record["start_number"])
        new = [ConfigChange(start, first_step, each.key, each.before, each.after, t, by, reason) for each in changed]
        record["config"] = cast("JsonValue", config_tables(config))
        record[CHANGES_KEY] = [
            *cast("list[JsonValue]", record.get(CHANGES_KEY, [])),
            *(cast("JsonValue", asdict(each)) for each in new),
        ]
        write_json(path, record)
    except OSError as error:
        raise directory_error(run_dir, error) from error


def read_changes(run_dir: Path) -> list[ConfigChange]:
    """Return the changes in order of time; none if there is no readable record."""
    try:
        record: dict[str, JsonValue] = orjson.loads((run_dir / CONFIG_FILE).read_bytes())
        return TypeAdapter(list[ConfigChange]).validate_python(record.get(CHANGES_KEY, []))
    except (OSError, ValueError, AttributeError):
        return []
