"""The pause of a run, the only request that outlives the start of the run in which it was made."""

from __future__ import annotations

from pathlib import Path

import orjson

from launch.run_records.run_directory import write_json
from launch.run_records.run_lock import directory_error
from protocol.cli.output import display_path
from protocol.errors import UserError

PAUSE_FILE = "pause_state.json"
PAUSE_ALERT = "paused"
_PAUSED = "paused"


def is_paused(run_dir: Path) -> bool:
    """Return whether the run is paused.  Raises UserError for a file that cannot be read."""
    path = run_dir / PAUSE_FILE
    try:
        return orjson.loads(path.read_bytes())[_PAUSED] is True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise directory_error(run_dir, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}): remove it (rm {path}), and go on") from error


def write_paused(run_dir: Path, paused: bool) -> None:
    """Record whether the run is paused.  Raises RunDirectoryError."""
    try:
        write_json(run_dir / PAUSE_FILE, {_PAUSED: paused})
    except OSError as error:
        raise directory_error(run_dir, error) from error


def describe_pause(run_dir: Path) -> str:
    """Return the text of a paused run's alert."""
    return f"the run is paused on request: `longshore ctl {display_path(run_dir)} resume` continues it"
