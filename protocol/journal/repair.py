"""Checking a journal that no process has open, and recovering a damaged one.

Readable rows are kept, and others are rebuilt as far as the rest allows (:mod:`protocol.journal.salvage`).  A missing
or damaged payload is taken from the export, which the buffer writes beside the journal.  A trajectory that is in
neither is reported, and if it was yet to be trained, its group continues without it
(:mod:`protocol.journal.lost_payloads`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from protocol import codec
from protocol.errors import UserError
from protocol.files.filesystem import fsync_path
from protocol.journal.lost_payloads import forget_lost_payloads
from protocol.journal.payload_check import is_acknowledged
from protocol.journal.salvage import JournalSalvage, UnreadableJournalError
from protocol.journal.schema import TABLES
from protocol.journal.store import PAGE_BYTES, UNREADABLE
from protocol.run_directory.trajectory_export import ExportIndexEntry, read_export_index, read_exported_blob

JOURNAL_FILE = Path("buffer") / "journal.sqlite"
"""Path within a run directory."""
_LEAST_ROW_BYTES = 32
RECOVERED = ".recovered"
"""Suffix of a recovered journal that is not yet in its place."""
_NEEDED = "state = 'buffered' OR step > coalesce((SELECT value FROM meta WHERE key = 'compacted'), 0)"
"""Rows whose payload a kept checkpoint may still need."""


@dataclass(slots=True)
class JournalFindings:
    """Findings of a check."""

    damage: list[str] = field(default_factory=list[str])
    """SQLite's messages; empty if the file is intact."""
    rows: int = 0
    """Trajectories in the journal."""
    payloads: int = 0
    """Payloads that are stored intact."""
    bad_payloads: list[str] = field(default_factory=list[str])
    """Trajectories whose stored bytes do not match their digest."""
    missing_payloads: list[str] = field(default_factory=list[str])
    """Trajectories without stored bytes that a kept checkpoint may still need."""

    @property
    def whole(self) -> bool:
        return not (self.damage or self.bad_payloads or self.missing_payloads)


@dataclass(slots=True)
class JournalRecovery:
    """Result of a recovery."""

    damaged_file: Path
    rows: int
    rebuilt: int = 0
    """Rows that could not be read and were rebuilt."""
    payloads: int = 0
    """Payloads read from the damaged file."""
    from_export: int = 0
    lost: list[str] = field(default_factory=list[str])
    """Trajectories whose bytes are neither in the damaged file nor in the export."""
    forgotten_groups: list[int] = field(default_factory=list[int])
    """Groups without any trajectory whose row is lost: their tasks are skipped."""


def require_journal(run_dir: Path) -> None:
    """Raise UserError if a run to be resumed has no journal: starting with an empty one would lose everything."""
    path = run_dir / JOURNAL_FILE
    if not path.exists() or path.stat().st_size == 0:
        raise UserError(
            f"{path} is {'empty' if path.exists() else 'gone'}, and with it every acknowledged trajectory that is not "
            "trained yet: put it back, or, if a recovery was interrupted, run "
            f"`longshore journal recover {run_dir}` again"
        )


def check_journal(path: Path) -> JournalFindings:
    """Check every page and every payload.  Raises UserError if there is no journal or another process has it open."""
    found = JournalFindings()
    with closing(_open(path)) as database:
        try:
            words = [word for (word,) in database.execute("PRAGMA integrity_check(20)")]
            found.damage = [] if words == ["ok"] else words
            for name, digest, blob, needed in database.execute(
                f"SELECT trajectory, digest, blob, {_NEEDED} FROM trajectories LEFT JOIN payloads USING (trajectory)"  # noqa: S608  written above
            ):
                found.rows += 1
                if blob is None:
                    found.missing_payloads += [name] if needed else []
                elif is_acknowledged(blob, digest):
                    found.payloads += 1
                else:
                    found.bad_payloads.append(name)
        except UNREADABLE as error:
            _require_free(path, error)
            found.damage.append(str(error))
    return found


def recover_journal(run_dir: Path) -> JournalRecovery:
    """Make a new journal from everything readable and the export; keep the damaged one beside it.

    Raises UserError if there is no journal, another process has it open, or its run or sampler state cannot be read.
    """
    path = run_dir / JOURNAL_FILE
    whole, fresh = path.with_suffix(RECOVERED), path.with_suffix(".recovering")
    if whole.exists() and not path.exists():  # a recovery was interrupted here
        damaged, found = _install_recovered(path, whole), check_journal(path)
        return JournalRecovery(damaged, found.rows, payloads=found.payloads, lost=found.missing_payloads)
    whole.unlink(missing_ok=True)
    fresh.unlink(missing_ok=True)
    with closing(_open(path)) as old, closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        new.execute(f"PRAGMA page_size={PAGE_BYTES}")
        new.execute("PRAGMA synchronous=FULL")
        new.execute("BEGIN")
        for statement in TABLES.split(";"):
            new.execute(statement)
        copies = _PayloadCopies(run_dir, old)
        salvage = JournalSalvage(old, new, copies.whole, copies.exported, path.stat().st_size // _LEAST_ROW_BYTES)
        try:
            salvage.salvage_rows()
        except UnreadableJournalError as error:
            raise UserError(
                f"{error} of {path} cannot be read, and without it the state of training is unknown: the trajectories "
                f"themselves are in {path.parent.parent / 'trajectories'}; start a new run"
            ) from error
        recovery = JournalRecovery(
            path, 0, salvage.rebuilt, lost=salvage.lost, forgotten_groups=sorted(salvage.forgotten)
        )
        _restore_payloads(copies, new, recovery)
        recovery.lost += [name for name in forget_lost_payloads(new) if name not in recovery.lost]
        recovery.rows = cast("int", new.execute("SELECT count(*) FROM trajectories").fetchone()[0])
        new.execute("COMMIT")
    fresh.rename(whole)
    fsync_path(path.parent)
    recovery.damaged_file = _install_recovered(path, whole)
    return recovery


def _install_recovered(path: Path, whole: Path) -> Path:
    """Move the damaged journal aside, install ``whole`` in its place, and return the damaged file's new path.

    The database moves before its log, so that an interruption never leaves it in place without the log.
    """
    free = next(number for number in count(1) if not _damaged_path(path, number).exists())
    damaged = _damaged_path(path, free if path.exists() else max(1, free - 1))
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(damaged.with_name(damaged.name + suffix))
    fsync_path(path.parent)
    whole.rename(path)
    fsync_path(path.parent)
    return damaged


@dataclass(slots=True)
class _PayloadCopies:
    """Copies of trajectories in the damaged file and in the export."""

    run_dir: Path
    old: sqlite3.Connection
    exported: dict[str, ExportIndexEntry] = field(init=False)
    _rowids: dict[str, int] = field(default_factory=dict[str, int])
    """Row of each payload, for payloads that the damaged index no longer finds."""

    def __post_init__(self) -> None:
        self.exported = {entry.trajectory: entry for entry in read_export_index(self.run_dir)}
        with suppress(*UNREADABLE):  # if the table cannot be read, its index is enough
            for name, rowid in self.old.execute("SELECT trajectory, rowid FROM payloads NOT INDEXED"):
                self._rowids[name] = rowid

    def stored(self, name: str) -> Iterator[bytes]:
        for where, key in (("trajectory = ?", name), ("rowid = ?", self._rowids.get(name))):
            query = f"SELECT blob FROM payloads WHERE {where}"  # noqa: S608  written above
            for (blob,) in _readable(lambda query=query, key=key: self.old.execute(query, (key,))):
                if isinstance(blob, bytes):
                    yield blob

    def from_export(self, name: str) -> Iterator[bytes]:
        with suppress(OSError, codec.CodecError):
            if (entry := self.exported.get(name)) is not None:
                yield read_exported_blob(self.run_dir, entry)

    def whole(self, name: str) -> bytes | None:
        """Return an intact copy of trajectory ``name``; None if there is none."""
        for copies in (self.stored(name), self.from_export(name)):
            for blob in copies:
                with suppress(codec.CodecError):
                    summary = codec.inspect_blob(blob)
                    if summary.request.trajectory_id == name:
                        return blob
        return None


def _restore_payloads(copies: _PayloadCopies, new: sqlite3.Connection, recovery: JournalRecovery) -> None:
    needed = new.execute(f"SELECT trajectory, digest FROM trajectories WHERE {_NEEDED} ORDER BY rowid").fetchall()  # noqa: S608  written above
    for name, digest in cast("list[tuple[str, bytes]]", needed):
        blob = next((copy for copy in copies.stored(name) if is_acknowledged(copy, digest)), None)
        if blob is not None:
            recovery.payloads += 1
        else:
            blob = next((copy for copy in copies.from_export(name) if is_acknowledged(copy, digest)), None)
            recovery.from_export += blob is not None
        if blob is None:
            recovery.lost.append(name)
        else:
            new.execute("INSERT INTO payloads VALUES (?, ?)", (name, blob))


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise UserError(f"there is no journal at {path}: name the directory of a run that has begun")
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
    with ExitStack() as undo:
        undo.callback(database.close)
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        _readable(lambda: database.execute("BEGIN EXCLUSIVE"), path)
        undo.pop_all()
    return database


def _readable(query: Callable[[], sqlite3.Cursor], path: Path | None = None) -> Sequence[Any]:
    """Return the rows of a query; none if the file is damaged there."""
    try:
        return query().fetchall()
    except UNREADABLE as error:
        if path is not None:
            _require_free(path, error)
        return []


def _require_free(path: Path, error: Exception) -> None:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        raise UserError(
            f"{path} is open in another process: stop the run first (`longshore monitor {path.parent.parent}` shows it)"
        ) from error


def _damaged_path(path: Path, number: int) -> Path:
    return path.with_suffix(f".damaged-{number}")
