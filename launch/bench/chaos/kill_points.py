"""Moments at which a process ends itself with SIGKILL, if the killer has armed them; and the list of the killed.

A point is armed for one kind of process by a file, and the first of them that reaches it takes the file away, so that
each arming costs one process.  A process writes down its end before it ends; the killer does the same for those whom it
kills.  Both are in one folder, which the processes of the run find by a variable of their environment.
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

KILLS_FOLDER_VARIABLE = "LONGSHORE_CHAOS_FOLDER"
_KILLS = "kills.jsonl"


class KilledProcess(StrEnum):
    WORKER = "worker"
    BUFFER = "buffer"
    SCHEDULER = "scheduler"
    LEARNER = "learner"
    DRIVER = "driver"
    """Takes all the others with it; the run goes on by ``--resume``."""


class KillPoint(StrEnum):
    APPEND_ACK = "append_ack"
    """Trajectories are in the journal, and nobody has been told."""
    LEASE_STEP = "lease_step"
    """A batch is leased, and the step on it not taken."""
    STEP_SHARD = "step_shard"
    """The step is taken and marked in the journal, and no shard of its checkpoint written."""
    SHARDS_MANIFEST = "shards_manifest"
    """All shards are written, and no manifest says so."""
    MANIFEST_COMMIT = "manifest_commit"
    """The checkpoint is complete, and the journal does not know."""
    COMMIT_COMPACT = "commit_compact"
    """The journal knows, and still has the payloads that no checkpoint needs."""

    @property
    def victims(self) -> Sequence[KilledProcess]:
        """Whom it kills, each in its turn."""
        match self:
            case KillPoint.APPEND_ACK:
                return (KilledProcess.BUFFER,)
            case KillPoint.MANIFEST_COMMIT | KillPoint.COMMIT_COMPACT:
                return (KilledProcess.BUFFER, KilledProcess.DRIVER)
            case _:
                return (KilledProcess.LEARNER,)


POINT_VICTIMS = tuple((point, victim) for point in KillPoint for victim in point.victims)
"""Who is killed where."""
AT_RANDOM = tuple(process for process in KilledProcess if process is not KilledProcess.DRIVER)
"""Those that are killed at moments of chance too: what a driver's death leaves to a resume, it leaves at its points."""


@dataclass(frozen=True, slots=True)
class Kill:
    t: float
    """Unix seconds, just before the signal."""
    process: KilledProcess
    pid: int
    point: KillPoint | None
    """None for a moment that the dice chose."""


def write_kill(folder: Path, kill: Kill) -> None:
    """Append it."""
    append_atomically(folder / _KILLS, orjson.dumps(asdict(kill)) + b"\n")


def read_kills(folder: Path) -> Sequence[Kill]:
    """In the order in which they were written."""
    path = folder / _KILLS
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [
        Kill(
            kill["t"], KilledProcess(kill["process"]), kill["pid"], KillPoint(kill["point"]) if kill["point"] else None
        )
        for kill in map(orjson.loads, lines)
    ]


def arm_kill_point(folder: Path, point: KillPoint, victim: KilledProcess) -> None:
    """The next ``victim`` that reaches ``point`` ends there."""
    _arming_file(folder, point, victim).touch()


def disarm_kill_point(folder: Path, point: KillPoint, victim: KilledProcess) -> None:
    _arming_file(folder, point, victim).unlink(missing_ok=True)


def reach_kill_point(point: KillPoint, victim: KilledProcess) -> None:
    """This process, a ``victim``, is at ``point``: it ends here if that is armed."""
    folder = Path(os.environ[KILLS_FOLDER_VARIABLE])
    try:
        _arming_file(folder, point, victim).unlink()
    except FileNotFoundError:
        return
    write_kill(folder, Kill(time.time(), victim, os.getpid(), point))
    os.kill(os.getpid(), signal.SIGKILL)


def _arming_file(folder: Path, point: KillPoint, victim: KilledProcess) -> Path:
    return folder / f"{point.value}-{victim.value}"
