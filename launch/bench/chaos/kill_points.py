"""Kill points, at which a process kills itself with SIGKILL if the killer has armed them, and the list of kills.

A point is armed for one kind of process by a file, and the first process that reaches it removes the file, so that
each arming costs one process.  Every kill is written down before it happens.  Both are in one folder, which the
processes of the run find by an environment variable.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from protocol.files.filesystem import append_atomically
from protocol.run_directory.file_tail import read_lines

KILLS_FOLDER_VARIABLE = "LONGSHORE_CHAOS_FOLDER"
_KILLS = "kills.jsonl"


class KilledProcess(StrEnum):
    WORKER = "worker"
    BUFFER = "buffer"
    SCHEDULER = "scheduler"
    LEARNER = "learner"
    DRIVER = "driver"
    """The driver, whose death ends all other processes; the run is resumed."""


class KillPoint(StrEnum):
    APPEND_ACK = "append_ack"
    """Trajectories are in the journal, but not acknowledged."""
    LEASE_STEP = "lease_step"
    """A batch is leased, but its step is not taken."""
    STEP_SHARD = "step_shard"
    """The step is taken and marked in the journal, but no shard of its checkpoint is written."""
    SHARDS_MANIFEST = "shards_manifest"
    """All shards are written, but not the manifest."""
    MANIFEST_COMMIT = "manifest_commit"
    """The checkpoint is complete, but not committed in the journal."""
    COMMIT_COMPACT = "commit_compact"
    """The checkpoint is committed, but unneeded payloads are not removed."""

    @property
    def victims(self) -> Sequence[KilledProcess]:
        """Processes that are killed at this point, in turn."""
        match self:
            case KillPoint.APPEND_ACK:
                return (KilledProcess.BUFFER,)
            case KillPoint.MANIFEST_COMMIT | KillPoint.COMMIT_COMPACT:
                return (KilledProcess.BUFFER, KilledProcess.DRIVER)
            case _:
                return (KilledProcess.LEARNER,)


POINT_VICTIMS = tuple((point, victim) for point in KillPoint for victim in point.victims)
"""Kill point → process that is killed there."""
AT_RANDOM = tuple(process for process in KilledProcess if process is not KilledProcess.DRIVER)
"""Processes that are also killed at random; drivers are only killed at their points."""


@dataclass(frozen=True, slots=True)
class Kill:
    t: float
    """Unix seconds, just before the signal."""
    process: KilledProcess
    pid: int
    point: KillPoint | None
    """Kill point; None for a random moment."""


def write_kill(folder: Path, kill: Kill) -> None:
    """Append a kill to the list."""
    append_atomically(folder / _KILLS, orjson.dumps(asdict(kill)) + b"\n")


def read_kills(folder: Path) -> Sequence[Kill]:
    """Return the kills in the order in which they were written."""
    return [
        Kill(
            kill["t"], KilledProcess(kill["process"]), kill["pid"], KillPoint(kill["point"]) if kill["point"] else None
        )
        for kill in map(orjson.loads, read_lines(folder / _KILLS))
    ]


def arm_kill_point(folder: Path, point: KillPoint, victim: KilledProcess) -> None:
    """Arm a point, so that the next ``victim`` that reaches it is killed."""
    _arming_file(folder, point, victim).touch()


def disarm_kill_point(folder: Path, point: KillPoint, victim: KilledProcess) -> None:
    _arming_file(folder, point, victim).unlink(missing_ok=True)


def reach_kill_point(point: KillPoint, victim: KilledProcess) -> None:
    """Kill this process, a ``victim``, if ``point`` is armed for it."""
    folder = Path(os.environ[KILLS_FOLDER_VARIABLE])
    try:
        _arming_file(folder, point, victim).unlink()
    except FileNotFoundError:
        return
    write_kill(folder, Kill(time.time(), victim, os.getpid(), point))
    os.kill(os.getpid(), signal.SIGKILL)


def _arming_file(folder: Path, point: KillPoint, victim: KilledProcess) -> Path:
    return folder / f"{point.value}-{victim.value}"
