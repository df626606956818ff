"""The state that a pool server needs after a restart: one small file for each lease.

Lines of JSON are appended before an operation and after its result; the file is removed with the lease. It protects
against the death of the process, not of the machine (whose containers are lost too), so nothing is synced to disk. An
incomplete last line is ignored.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from protocol.errors import InfraError, UserError
from protocol.files.filesystem import explain_write_errors, replace_file
from sandbox.http.messages import HttpReply
from sandbox.pool.leases import SlotLease
from sandbox.server.operation_record import KnownOperation

MAX_APPENDED_BYTES = 2 << 20
"""Bytes appended to a file before it is rewritten with the lines that are still needed."""


@dataclass(slots=True)
class RememberedLease:
    """A lease as its journal describes it."""

    lease: SlotLease
    container: str = ""
    """Id of the container; empty before the first reset."""
    reset: dict[str, Any] = field(default_factory=dict[str, Any])
    """The request that created the container, as far as it is needed again."""
    step: int | None = None
    """Number of the step of the task that is played."""
    operations: dict[str, KnownOperation] = field(default_factory=dict[str, KnownOperation])
    """Operations that may be requested again, by key."""


class LeaseJournal:
    """The file of one lease.

    Writing raises InfraError, and does nothing once the file is removed, because an operation may outlast its lease.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._appended = 0
        self._removed = False

    def record_lease(self, lease: SlotLease) -> None:
        """Append the lease."""
        self._append(_opened(lease))

    def record_sandbox(self, container: str, reset: dict[str, Any]) -> None:
        """Append the lease's container and the reset that created it."""
        self._append({"container": container, "reset": reset})

    def record_step(self, step: int) -> None:
        """Append that a step of the task began."""
        self._append({"step": step})

    def begin(self, key: str, digest: str) -> None:
        """Append that an operation begins."""
        self._append({"begin": key, "digest": digest})

    def end(self, key: str, reply: HttpReply) -> None:
        """Append an operation's reply."""
        self._append({"end": key, "reply": reply.record()})

    def delivered(self, key: str) -> None:
        """Append that an operation's reply was delivered."""
        self._append({"delivered": key})

    @property
    def is_long(self) -> bool:
        """True if the file should be rewritten."""
        return self._appended > MAX_APPENDED_BYTES

    def rewrite(self, known: Iterable[KnownOperation]) -> None:
        """Rewrite the file with these operations only, so that it does not grow with the lease's age."""
        if self._removed:
            return
        try:
            found = _read(self._path)
            if found is None:
                return
            lines = [_opened(found.lease), {"container": found.container, "reset": found.reset}, {"step": found.step}]
            for each in known:
                lines.append({"begin": each.key, "digest": each.digest})
                if each.reply is not None:
                    lines.append({"end": each.key, "reply": each.reply.record()})
            replace_file(self._path, b"".join(map(_encoded, lines)))
        except OSError as error:
            raise InfraError(f"the lease's journal cannot be rewritten: {error}") from error
        self._appended = 0

    def remove(self) -> None:
        """Remove the file."""
        self._removed = True
        self._path.unlink(missing_ok=True)

    def _append(self, line: dict[str, Any]) -> None:
        if self._removed:
            return
        encoded = _encoded(line)
        try:
            with self._path.open("ab") as file:
                file.write(encoded)
        except OSError as error:
            raise InfraError(f"the lease's journal cannot be written: {error}") from error
        self._appended += len(encoded)


def _opened(lease: SlotLease) -> dict[str, Any]:
    named = {"lease": lease.id, "task_key": lease.task_key, "request_id": lease.request_id, "group": lease.group}
    return {**named, "reserved": lease.reserved}


def _encoded(line: dict[str, Any]) -> bytes:
    """Encode a line, with a line break before it in case the last one was incomplete."""
    return b"\n" + json.dumps(line).encode() + b"\n"


class StateDirectory:
    """The folder of one server, and the lock on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        """Take the lock. Raises UserError if another server holds it, or if the folder cannot be written to."""
        with explain_write_errors(self._folder, "name another folder with --state"):
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

    @property
    def id(self) -> str:
        """Id of the folder: 16 hexadecimal digits, created at the first use."""
        path = self._folder / "id"
        if not path.exists():
            replace_file(path, secrets.token_hex(8).encode())
        return path.read_text()

    def journal(self, lease_id: str) -> LeaseJournal:
        """Return the journal of a lease."""
        return LeaseJournal(self._folder / f"{lease_id}.jsonl")

    def remembered_leases(self) -> Iterator[RememberedLease]:
        """Yield the leases of an earlier server, and remove files without one."""
        for path in sorted(self._folder.glob("run-*.jsonl")):
            found = _read(path)
            if found is None:
                path.unlink(missing_ok=True)
            else:
                yield found


def _read(path: Path) -> RememberedLease | None:
    found: RememberedLease | None = None
    for raw in path.read_bytes().split(b"\n"):
        try:
            line = cast("dict[str, Any]", json.loads(raw))
        except ValueError:
            continue
        if "lease" in line:
            lease = SlotLease(line["lease"], line["task_key"], 0.0, line["request_id"], line["group"])
            lease.reserved = line.get("reserved", False)
            found = RememberedLease(lease)
        elif found is None:
            return None
        elif "container" in line:
            found.container, found.reset, found.step = line["container"], line["reset"], None
        elif "step" in line:
            found.step = line["step"]
        elif "begin" in line:
            found.operations[line["begin"]] = KnownOperation(line["begin"], line["digest"], None)
        elif "end" in line and (started := found.operations.get(line["end"])):
            found.operations[started.key] = started._replace(reply=HttpReply.recorded(line["reply"]))
        elif "delivered" in line:
            found.operations.pop(line["delivered"], None)
    return found
