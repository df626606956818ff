"""One SQLite file, open in one process and written in transactions that are durable on return."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from protocol.cli.formatting import format_bytes
from protocol.files.filesystem import free_bytes, fsync_path, require_local_filesystem
from protocol.journal.schema import SCHEMA, TABLES
from protocol.journal.values import MIB, DiskFullError, JournalError, JournalSettings

LOCK_WAIT_S = 10.0
"""Seconds to wait for another process to close the file."""
PAGE_BYTES = 16384
"""Page size of a new file: trajectories are large, and a page is the unit of the write-ahead log."""
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Codes of a damaged file; SQLITE_ERROR because a damaged schema may name tables and columns differently."""
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors from reading a damaged file; Python's module may fail to decode names of the file in SQLite's messages."""
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SPARE_BYTES = 64 * MIB
"""Free space with which a failed write is not due to a full disk."""


class JournalStore:
    """The open file, and the queries that all operations share.

    Raises UserError on a network file system, JournalError for another run's file or one that another process has open.
    """

    def __init__(self, path: Path, settings: JournalSettings, free: Callable[[Path], int] = free_bytes) -> None:
        self.path, self._settings, self._free = path, settings, free
        path.parent.mkdir(parents=True, exist_ok=True)
        require_local_filesystem(path.parent)
        self._db = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None, cached_statements=256)
        with ExitStack() as undo:
            undo.callback(self._db.close)
            self._prepare()
            undo.pop_all()

    def _prepare(self) -> None:
        log_bytes = wal_bytes(self._settings.budget_bytes)
        pragmas = (
            f"page_size={PAGE_BYTES}",
            "locking_mode=EXCLUSIVE",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=OFF",  # if on by default, a compaction would write all freed pages to the log, zeroed
            f"wal_autocheckpoint={log_bytes // PAGE_BYTES}",
            f"journal_size_limit={log_bytes}",
        )
        try:
            for pragma in pragmas:
                self._db.execute(f"PRAGMA {pragma}")
            if (found := self._query("PRAGMA quick_check(1)")[0][0]) != "ok":
                raise JournalError(damage_message(self.path, " ".join(found.split())))
            with self._transaction():
                if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
                    for statement in TABLES.split(";"):
                        self._db.execute(statement)
                    self._set("schema", SCHEMA)
                    self._set("run_id", self._settings.run_id)
                schema, run_id = self._get("schema"), self._get("run_id")
        except UNREADABLE as error:
            if _is_damage(error):
                raise JournalError(damage_message(self.path, str(error))) from error
            if _code(error) not in _IN_USE:
                raise JournalError(
                    f"{self.path} cannot be opened ({error}): check its owner, its mode and its disk"
                ) from error
            raise JournalError(
                f"{self.path} cannot be opened ({error}): another process has it open; "
                f"`longshore monitor {self.path.parent.parent}` shows whether the run is alive"
            ) from error
        if schema != SCHEMA:
            raise JournalError(
                f"{self.path} has schema {schema}, this longshore writes {SCHEMA}: use the one that made it"
            )
        if run_id != self._settings.run_id:
            raise JournalError(
                f"{self.path} belongs to run {run_id}, not {self._settings.run_id}: give each run its own folder"
            )
        fsync_path(self.path.parent)
        fsync_path(self.path.parent.parent)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if _is_damage(error):
                raise JournalError(damage_message(self.path, str(error))) from error
            if isinstance(error, sqlite3.OperationalError) and _code(error) in _NO_ROOM:
                raise self._not_written(error) from error
            raise

    def _not_written(self, error: sqlite3.OperationalError) -> DiskFullError | JournalError:
        free = self._free(self.path.parent)
        message = f"{self.path} could not be written ({error}) with {format_bytes(free)} free: nothing was acknowledged"
        if _code(error) == sqlite3.SQLITE_IOERR and free > _SPARE_BYTES:
            return JournalError(f"{message}. The disk itself may be failing: see `dmesg`")
        return DiskFullError(f"{message}. Free some space (du -xh {self.path.parent.parent} | sort -h | tail)")

    def _query(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except UNREADABLE as error:
            if _is_damage(error):
                raise JournalError(damage_message(self.path, str(error))) from error
            if _code(error) == sqlite3.SQLITE_IOERR:
                message = f"{self.path} could not be read ({error}): see `dmesg` for disk errors"
                raise JournalError(message) from error
            raise

    @contextmanager
    def _checked_values(self) -> Generator[None]:
        """Raise JournalError for invalid values in the body: the disk changed them, and SQLite has no checksum."""
        try:
            yield
        except ValueError as error:
            raise JournalError(damage_message(self.path, str(error))) from error

    def _count(self, what: str) -> int:
        return self._query(f"SELECT count(*) FROM {what}")[0][0]  # noqa: S608  # `what` is a constant of this package

    def _get(self, key: str) -> object:
        found = self._query("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found else None

    def _number(self, key: str) -> int:
        return cast("int | None", self._get(key)) or 0

    def _set(self, key: str, value: bytes | int | str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _add(self, key: str, number: int) -> None:
        self._set(key, self._number(key) + number)

    def _closed(self) -> int:
        return self._query("SELECT coalesce(max(closed_seq), 0) FROM groups")[0][0]

    def _reserved(self) -> int:
        """Return the bytes reserved for samples of open groups that may still arrive, abandoned ones included."""
        if self._number("ended"):
            return 0
        late = "rollout_requests CROSS JOIN groups ON id = group_id WHERE state = 'abandoned' AND outcome = 'open'"
        missing = self._count("rollout_requests WHERE state = 'running'") + self._count(late)
        return missing * self._settings.max_trajectory_bytes

    def _live(self) -> int:
        held = self._query("SELECT coalesce(sum(bytes), 0) FROM trajectories WHERE state = 'buffered'")[0][0]
        return held + self._uncommitted()

    def _uncommitted(self) -> int:
        return self._query(
            "SELECT coalesce(sum(bytes), 0) FROM trajectories WHERE state IN ('trained', 'dropped') AND step > ?",
            self._number("committed"),
        )[0][0]


def wal_bytes(budget_bytes: int) -> int:
    """Return the size at which the write-ahead log is checkpointed into the database.

    The log can exceed it by one transaction, so a caller that appends at most as much at once keeps the log within a
    quarter of ``budget_bytes`` (or 2 MiB).
    """
    return max(MIB, min(64 * MIB, budget_bytes // 8))


def damage_message(path: Path, what: str) -> str:
    return (
        f"{path} is damaged ({what}): `longshore journal recover {path.parent.parent}` makes a new one from "
        "everything readable and the export, and keeps this one beside it"
    )


def _is_damage(error: BaseException) -> bool:
    """Return whether pages, schema or text are invalid; Python's module has no SQLite code for invalid text."""
    return isinstance(error, UNREADABLE) and (_code(error) in _DAMAGE_CODES or "decode" in str(error))


def _code(error: Exception) -> int:
    """Return SQLite's primary code; 0 if Python's module raised the error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
