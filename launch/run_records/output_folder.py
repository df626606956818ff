"""Folders that a command fills and continues: of one evaluation or one sweep, for one process at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.run_directory.layout import LOCK_FILE, STARTS_FOLDER
from protocol.run_directory.plain_files import require_plain_files

_NEW_FOLDER_ENTRIES = {STARTS_FOLDER, LOCK_FILE}
"""Entries of a folder that was opened and not yet written to."""


def is_output_folder(path: Path, marker: str, kind: str) -> bool:
    """Return whether ``path`` has the file ``marker``; False if it is new.  Raises UserError if it has other files, or
    something that is neither a file nor a folder."""
    if path.is_dir():
        require_plain_files(path)
    if (path / marker).exists():
        return True
    if path.exists() and (not path.is_dir() or any(each.name not in _NEW_FOLDER_ENTRIES for each in path.iterdir())):
        raise UserError(f"{path} holds something other than {kind}: choose another folder, --output FOLDER")
    return False


@contextmanager
def open_output_folder(path: Path, check: Callable[[], object]) -> Generator[RunDirectory]:
    """Open ``path``, creating it if needed, and hold its lock.

    ``check`` raises UserError if the folder belongs to something else; it also runs under the lock."""
    check()
    try:
        path.mkdir(0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}; choose another folder, --output FOLDER") from error
    with RunDirectory.open(path) as directory:
        check()
        yield directory
