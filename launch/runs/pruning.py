"""Removes parts of runs that are not needed any more, and says what that frees.

A run that goes on is left alone, also one that begins while this looks: its lock is held meanwhile.  What is removed
by default nobody needs any more; the rest has to be named.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from launch.checkpoints.store import CheckpointStore
from launch.run_records.run_lock import hold_run_lock
from launch.runs.run_list import folder_bytes
from launch.settings.checkpoint import RetentionSettings
from protocol.run_directory.layout import STARTS_FOLDER, RunDirectoryError
from protocol.run_directory.plain_files import require_plain_files


class PrunablePart(StrEnum):
    """The parts of a run without a driver that can be removed."""

    LEFTOVERS = "leftovers"
    """Files that crashes left half written or set aside, and the hosts' copies of weights."""
    WEIGHTS = "weights"
    """All published weights but the newest."""
    CHECKPOINTS = "checkpoints"
    """All checkpoints but the newest complete one, from which the run resumes; the best and the first go too."""
    LOGS = "logs"
    """The logs of all starts."""
    TERMINALS = "terminals"
    """The terminal recordings, without which no terminal can be replayed."""
    TRAJECTORIES = "trajectories"
    """The exported trajectories, without which the run can be neither replayed nor trained on."""
    RUN = "run"
    """The whole run."""


DEFAULT_PARTS = (PrunablePart.LEFTOVERS, PrunablePart.WEIGHTS)


@dataclass(frozen=True, slots=True)
class PrunableFiles:
    run: str
    part: PrunablePart
    bytes: int
    paths: tuple[Path, ...]


def find_prunable(run_dir: Path) -> list[PrunableFiles]:
    """Return the existing paths of each part, for a run without a driver."""
    found: list[PrunableFiles] = []
    for part, paths_of in _PATHS.items():
        if paths := tuple(sorted(paths_of(run_dir))):
            found.append(PrunableFiles(run_dir.name, part, sum(map(_bytes, paths)), paths))
    return found


def prune_runs(
    run_dirs: Sequence[Path], parts: Collection[PrunablePart], *, dry_run: bool
) -> tuple[list[PrunableFiles], list[str]]:
    """Remove parts of runs; return what was removed, or would be, and the runs that were left alone because a driver
    has them.  Raises RunDirectoryError if a run has a link in it, behind which another run's files may lie."""
    for run_dir in run_dirs:
        with suppress(OSError):  # what cannot be listed is not pruned
            require_plain_files(run_dir)
    gone: list[PrunableFiles] = []
    busy: list[str] = []
    for run_dir in run_dirs:
        try:
            with hold_run_lock(run_dir):
                there = [each for each in find_prunable(run_dir) if each.part in parts]
                gone += there
                if not dry_run:
                    _remove(there)
        except RunDirectoryError:
            busy.append(run_dir.name)
    return gone, busy


def _remove(there: Sequence[PrunableFiles]) -> None:
    for path in (path for each in there for path in each.paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _leftovers(run_dir: Path) -> list[Path]:
    checkpoints = run_dir / "checkpoints"
    patterns = (
        *((checkpoints, "*.unfinished"), (checkpoints, "*.torn"), (run_dir / "weights", ".v*")),
        *((run_dir / "weights", ".*.partial"), (run_dir, "copies"), (run_dir, "requests")),
    )
    return list({path for folder, pattern in patterns for path in folder.glob(pattern)})


def _weights(run_dir: Path) -> list[Path]:
    """Return the versions of the weights, whose names sort by time."""
    return sorted((run_dir / "weights").glob("v*"))[:-1]


def _checkpoints(run_dir: Path) -> list[Path]:
    return [
        checkpoint.path for checkpoint in CheckpointStore(run_dir, RetentionSettings(keep=1)).list_checkpoints()[:-1]
    ]


def _logs(run_dir: Path) -> list[Path]:
    return list((run_dir / STARTS_FOLDER).glob("*/logs/*"))


_PATHS: dict[PrunablePart, Callable[[Path], list[Path]]] = {
    PrunablePart.LEFTOVERS: _leftovers,
    PrunablePart.WEIGHTS: _weights,
    PrunablePart.CHECKPOINTS: _checkpoints,
    PrunablePart.LOGS: _logs,
    PrunablePart.TERMINALS: lambda run_dir: list(run_dir.glob("terminals")),
    PrunablePart.TRAJECTORIES: lambda run_dir: list(run_dir.glob("trajectories")),
    PrunablePart.RUN: lambda run_dir: [run_dir],
}


def _bytes(path: Path) -> int:
    return folder_bytes(path) if path.is_dir() else path.lstat().st_blocks * 512
