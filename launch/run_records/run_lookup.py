"""Finding the runs in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launch.run_records.stored_config import load_resumed_config, load_stored_config
from launch.settings.run import NegativeControl
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE, NoSuchRunError, RunDirectoryError, find_folder


def find_run(parent: Path, run: str) -> Path:
    """Return the directory of a run, which is named by its id in ``parent`` or by its path.  Raises NoSuchRunError."""
    path = Path(run)
    found = find_folder(path, parent)
    if not (found / CONFIG_FILE).is_file():
        raise NoSuchRunError(parent / run if path == Path(path.name) else path)
    return found


def find_newest_run(parent: Path, name: str, control: NegativeControl | None, overrides: Sequence[str] = ()) -> Path:
    """Return the newest run that can be resumed with ``overrides``, of recipe ``name`` unless that is empty and of
    ``control`` unless that is None.  Raises RunDirectoryError that says why the newest cannot."""
    refused: RunDirectoryError | None = None
    for path in reversed(list_runs(parent)):
        try:
            run = load_stored_config(path).run
        except UserError:
            continue
        if (name and run.name != name) or (control is not None and run.negative_control is not control):
            continue
        try:
            load_resumed_config(path, overrides)
        except RunDirectoryError as error:
            refused = refused or error
        else:
            return path
    if refused is not None:
        raise refused
    which = f"of recipe '{name}'" if name else "at all"
    raise RunDirectoryError(f"no run {which} in {parent}: leave --resume out to start one")


def list_runs(parent: Path) -> list[Path]:
    """Return the run directories in a folder, the newest last."""
    return sorted(
        (path for path in parent.glob("*") if (path / CONFIG_FILE).is_file()),
        key=lambda path: (path / CONFIG_FILE).stat().st_mtime_ns,
    )
