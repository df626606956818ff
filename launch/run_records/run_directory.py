"""A run's directory as its driver uses it: one driver at a time, numbered starts, files written whole.

``runs/<id>/`` holds ``config.json`` (see :mod:`launch.run_records.reproducibility`), ``starts/<n>/logs/`` and the
files of other modules, whose names are in :mod:`protocol.run_directory.layout`.  The driver holds a lock on it
(:mod:`launch.run_records.run_lock`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from launch.run_records.run_lock import directory_error, foreign_owner_error, lock_run
from launch.run_records.stored_config import find_resume_command
from protocol.events import JsonValue
from protocol.files.filesystem import replace_file
from protocol.run_directory.layout import (
    CONFIG_FILE,
    LOCK_FILE,
    REPORT_FILE,
    RUN_ID_PATTERN,
    STARTS_FOLDER,
    SUMMARY_FILE,
    RunDirectoryError,
    start_folder,
)
from protocol.run_directory.plain_files import require_plain_files
from protocol.run_directory.process_log import ProcessLog


class RunDirectory:
    """An open run directory, locked until it is closed."""

    def __init__(self, path: Path, start_number: int, lock_fd: int) -> None:
        self.path = path
        self.start_number = start_number
        """Number of this start of the run, 1 for the first."""
        self._lock_fd = lock_fd

    @classmethod
    def create(
        cls, parent: Path, name: str, run_id: str | None = None, *, shared: bool = False, now: float | None = None
    ) -> RunDirectory:
        """Make a new run's directory, by default ``<name>-<start time>``, and open it; only with ``shared`` can other
        accounts of the machine enter it, and none can change it.  Raises RunDirectoryError."""
        if run_id is not None:
            require_new_run(parent, run_id)
        started = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        base = run_id or f"{name}-{started}"
        for count in range(1, 1000):
            path = parent / (base if count == 1 else f"{base}-{count}")
            try:
                path.mkdir(0o755 if shared else 0o700, parents=True)
            except FileExistsError:
                if run_id is None:
                    continue
                raise _exists(path) from None
            except OSError as error:
                raise RunDirectoryError(
                    f"cannot make {path}: {error.strerror}; set another place, --set run.dir=FOLDER"
                ) from error
            return cls.open(path)
        raise RunDirectoryError(f"{parent / base} and 998 more exist: give this run a name (--run-id)")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Start the run once more.  Raises RunDirectoryError if another driver or another account has its directory, or
        if it holds anything but files and folders."""
        try:
            require_plain_files(path)
            with contextlib.ExitStack() as on_failure:
                lock_fd = lock_run(path / LOCK_FILE)
                on_failure.callback(os.close, lock_fd)
                before = [int(entry.name) for entry in path.glob(f"{STARTS_FOLDER}/*") if entry.name.isdigit()]
                opened = cls(path.absolute(), max(before, default=0) + 1, lock_fd)
                opened.logs.mkdir(parents=True)
                _require_own_files(path.resolve(), opened.logs.stat().st_uid)
                on_failure.pop_all()
        except OSError as error:
            raise directory_error(path, error) from error
        return opened

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def logs(self) -> Path:
        """Folder of this start's logs."""
        return start_folder(self.path, self.start_number) / "logs"

    def logs_in(self, folder: Path) -> Path:
        """Return the folder of this start's logs on a machine where ``folder`` replaces the run's directory."""
        return folder / self.logs.relative_to(self.path)

    def process_log(self, writer: str, node: str, folder: Path | None = None) -> ProcessLog:
        """Return the log of one process of this start, on a machine where ``folder`` replaces the run's directory."""
        return ProcessLog(self.logs_in(folder or self.path) / f"{writer}.jsonl", self.run_id, writer, node)

    def archive_results(self) -> None:
        """Move the results of the previous start to its folder: a resumed run has not ended."""
        for name in (SUMMARY_FILE, REPORT_FILE):
            with contextlib.suppress(FileNotFoundError):
                (self.path / name).replace(start_folder(self.path, self.start_number - 1) / name)

    def write_json(self, name: str, value: Mapping[str, JsonValue]) -> Path:
        """Write a file of the run atomically, also in case of a power loss, and return its path."""
        path = self.path / name
        write_json(path, value)
        return path

    def close(self) -> None:
        """Release the lock.  May be called twice."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def require_new_run(parent: Path, run_id: str) -> None:
    """Raise RunDirectoryError unless a new run can have this id."""
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise RunDirectoryError(f"'{run_id}' cannot be a run id: use letters, digits, '.', '_' and '-'")
    if (parent / run_id).exists():
        raise _exists(parent / run_id)


def _require_own_files(run_dir: Path, user_id: int) -> None:
    """Raise RunDirectoryError if another account can change the files of a run, and so what the run does and where it
    writes.  ``user_id`` owns what this process makes there."""
    if run_dir.stat().st_mode & stat.S_IWOTH:
        raise RunDirectoryError(f"{run_dir} can be changed by every account: chmod o-w {shlex.quote(str(run_dir))}")
    for folder, _, names in os.walk(run_dir):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_uid not in {0, os.geteuid(), user_id}:
                    raise foreign_owner_error(f"{path} can be changed by another account", path, run_dir)


def _exists(path: Path) -> RunDirectoryError:
    another = "give this one another name (--run-id NAME), or leave --run-id out for a new one"
    if (path / CONFIG_FILE).exists():
        return RunDirectoryError(
            f"{path} exists, and no run is overwritten: go on with that run (`{find_resume_command(path)}`), {another}"
        )
    return RunDirectoryError(
        f"{path} exists and is not a run that can be resumed: remove it (`rm -r {shlex.quote(str(path))}`), {another}"
    )


def write_json(path: Path, value: Mapping[str, JsonValue]) -> None:
    """Write a JSON file atomically."""
    replace_file(path, orjson.dumps(dict(value), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
