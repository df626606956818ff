"""What a pool server must still know after its own death: one small file for each lease.

Lines of JSON, appended before what they announce and after what they report; removed with the lease.  They are for the
death of the process, not of the machine (then the containers are gone too): nothing is synced to the disk.  A last line
that was cut off did not happen.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from protocol.errors import InfraError, UserError
from sandbox.leases import Lease
from sandbox.server.messages import Reply


@dataclass(slots=True)
class Remembered:
    """A lease as its journal tells it."""

    lease: Lease
    container: str = ""
    """Empty before the first reset."""
    reset: dict[str, Any] = field(default_factory=dict[str, Any])
    """The request that made the container."""
    under_way: set[str] = field(default_factory=set[str])
    """Operations that had begun and not ended."""
    replies: dict[str, Reply] = field(default_factory=dict[str, Reply])


class LeaseJournal:
    """The file of one lease.  What writes raises InfraError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def opened(self, lease: Lease) -> None:
        self._append(
            {"lease": lease.id, "task_key": lease.task_key, "request_id": lease.request_id, "group": lease.group}
        )

    def sandbox(self, container: str, reset: dict[str, Any]) -> None:
        self._append({"container": container, "reset": reset})

    def begin(self, key: str) -> None:
        self._append({"begin": key})

    def end(self, key: str, reply: Reply | None) -> None:
        self._append({"end": key, "reply": reply.record() if reply else None})

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _append(self, line: dict[str, Any]) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise InfraError(f"the lease's journal cannot be written: {error}") from error


class StateDirectory:
    """The folder of one server, which nobody else uses while it holds the lock.  A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        """Raises UserError when another server holds it."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise UserError(
                f"another pool server uses {self._folder}: give this one its own with --state, or stop that one"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def journal(self, lease_id: str) -> LeaseJournal:
        return LeaseJournal(self._folder / f"{lease_id}.jsonl")

    def remembered(self) -> Iterator[Remembered]:
        """The leases of an earlier server; a file that says nothing is removed."""
        for path in sorted(self._folder.glob("run-*.jsonl")):
            found = _read(path)
            if found is None:
                path.unlink(missing_ok=True)
            else:
                yield found


def _read(path: Path) -> Remembered | None:
    found: Remembered | None = None
    for raw in path.read_bytes().split(b"\n"):
        try:
            line = cast("dict[str, Any]", json.loads(raw))
        except ValueError:
            continue
        if "lease" in line:
            found = Remembered(Lease(line["lease"], line["task_key"], 0.0, line["request_id"], line["group"]))
        elif found is None:
            return None
        elif "container" in line:
            found.container, found.reset = line["container"], line["reset"]
        elif "begin" in line:
            found.under_way.add(line["begin"])
        elif "end" in line:
            found.under_way.discard(line["end"])
            if line["reply"] is not None:
                found.replies[line["end"]] = Reply.recorded(line["reply"])
    return found
