"""Moments at which a process ends itself with SIGKILL, if the killer has armed them; and the list of the killed.

A point is armed by a file, and whoever reaches it first takes the file away, so that each arming costs one process.  A
process writes down its end before it ends; the killer does the same for those whom it kills.  Both are in one folder,
which the processes of the run find by a variable of their environment.
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

from protocol.filesystem import append_whole

FOLDER = "LONGSHORE_CHAOS_FOLDER"
_KILLS = "kills.jsonl"


class Process(StrEnum):
    WORKER = "worker"
    BUFFER = "buffer"
    CONDUCTOR = "conductor"
    LEARNER = "learner"


class Point(StrEnum):
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
    def victim(self) -> Process:
        """Whom it kills."""
        learner = (Point.LEASE_STEP, Point.STEP_SHARD, Point.SHARDS_MANIFEST)
        return Process.LEARNER if self in learner else Process.BUFFER


@dataclass(frozen=True, slots=True)
class Kill:
    t: float
    """Unix seconds, just before the signal."""
    process: Process
    pid: int
    point: Point | None
    """None for a moment that the dice chose."""


def write_kill(folder: Path, kill: Kill) -> None:
    """Append it."""
    append_whole(folder / _KILLS, orjson.dumps(asdict(kill)) + b"\n")


def read_kills(folder: Path) -> Sequence[Kill]:
    """In the order in which they were written."""
    path = folder / _KILLS
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [
        Kill(kill["t"], Process(kill["process"]), kill["pid"], Point(kill["point"]) if kill["point"] else None)
        for kill in map(orjson.loads, lines)
    ]


def arm(folder: Path, point: Point) -> None:
    """The next process that reaches ``point`` ends there."""
    (folder / point.value).touch()


def disarm(folder: Path, point: Point) -> None:
    (folder / point.value).unlink(missing_ok=True)


def reached(point: Point) -> None:
    """This process is at ``point``: it ends here if that is armed."""
    folder = Path(os.environ[FOLDER])
    try:
        (folder / point.value).unlink()
    except FileNotFoundError:
        return
    write_kill(folder, Kill(time.time(), point.victim, os.getpid(), point))
    os.kill(os.getpid(), signal.SIGKILL)
