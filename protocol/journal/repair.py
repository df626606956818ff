"""Looking at a journal that nobody has open, and making a new one of a damaged one.

What can be read is kept.  A payload whose bytes are gone or wrong is taken from the export, which the buffer writes
beside the journal; a trajectory that is in neither is named, its row and its place in the books stay as they are, and a
batch that needs it will say so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from protocol import codec
from protocol.errors import UserError
from protocol.export import ExportEntry, read_blob, read_index
from protocol.filesystem import sync
from protocol.journal.payloads import is_acknowledged
from protocol.journal.schema import TABLES
from protocol.journal.store import PAGE_BYTES

FILE = Path("buffer") / "journal.sqlite"
"""In a run directory."""
RECOVERED = ".recovered"
"""Suffix of a journal that is made anew and not yet in its place."""
_COPIED = ("meta", "groups", "tickets", "rows", "superseded")
_NEEDED = "state = 'held' OR step > coalesce((SELECT value FROM meta WHERE key = 'compacted'), 0)"
"""Rows whose payload some kept checkpoint may still ask for."""


@dataclass(slots=True)
class Findings:
    """What a check found."""

    damage: list[str] = field(default_factory=list[str])
    """SQLite's own words, none where the file is whole."""
    rows: int = 0
    """Trajectories in the books."""
    payloads: int = 0
    """That are stored and are what was acknowledged."""
    bad_payloads: list[str] = field(default_factory=list[str])
    """Trajectories whose stored bytes are another's, or nobody's."""
    missing_payloads: list[str] = field(default_factory=list[str])
    """Trajectories that a kept checkpoint may still ask for and whose bytes are not there."""

    @property
    def whole(self) -> bool:
        return not (self.damage or self.bad_payloads or self.missing_payloads)


@dataclass(slots=True)
class Recovery:
    """What became of a damaged journal."""

    kept_beside: Path
    rows: int
    payloads: int = 0
    """Read from the damaged file."""
    from_export: int = 0
    lost: list[str] = field(default_factory=list[str])
    """Trajectories whose bytes are in neither."""


def require_journal(run_dir: Path) -> None:
    """Raises UserError where a run that is to go on has no journal: an empty one in its place would lose all."""
    path = run_dir / FILE
    if not path.exists():
        raise UserError(
            f"{path} is gone, and with it what was acknowledged and not trained: put it back, or, where a recovery was "
            f"cut off, run `python -m protocol.journal recover {run_dir}` again"
        )


def check(path: Path) -> Findings:
    """Look at every page and every payload.  Raises UserError where there is no journal, or somebody has it open."""
    found = Findings()
    with closing(_open(path)) as database:
        try:
            words = [word for (word,) in database.execute("PRAGMA integrity_check(20)")]
            found.damage = [] if words == ["ok"] else words
            for name, digest, blob, needed in database.execute(
                f"SELECT trajectory, digest, blob, {_NEEDED} FROM rows LEFT JOIN payloads USING (trajectory)"  # noqa: S608  written above
            ):
                found.rows += 1
                if blob is None:
                    found.missing_payloads += [name] if needed else []
                elif is_acknowledged(blob, digest):
                    found.payloads += 1
                else:
                    found.bad_payloads.append(name)
        except sqlite3.DatabaseError as error:
            _require_free(path, error)
            found.damage.append(str(error))
    return found


def recover(run_dir: Path) -> Recovery:
    """Make a new journal of what can be read and of the export; the damaged one stays beside it.

    Raises UserError where there is none, somebody has it open, or its groups and rows cannot be read.
    """
    path = run_dir / FILE
    whole, fresh = path.with_suffix(RECOVERED), path.with_suffix(".recovering")
    if whole.exists() and not path.exists():  # a recovery was cut off there
        beside, found = _put_in_place(path, whole), check(path)
        return Recovery(beside, found.rows, found.payloads, lost=found.missing_payloads)
    whole.unlink(missing_ok=True)
    fresh.unlink(missing_ok=True)
    with closing(_open(path)) as old, closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        new.execute(f"PRAGMA page_size={PAGE_BYTES}")
        new.execute("PRAGMA synchronous=FULL")
        new.execute("BEGIN")
        for statement in TABLES.split(";"):
            new.execute(statement)
        for table in _COPIED:
            _copy(path, old, new, table)
        recovery = Recovery(path, cast("int", new.execute("SELECT count(*) FROM rows").fetchone()[0]))
        _restore_payloads(run_dir, old, new, recovery)
        new.execute("COMMIT")
    fresh.rename(whole)
    sync(path.parent)
    recovery.kept_beside = _put_in_place(path, whole)
    return recovery


def _put_in_place(path: Path, whole: Path) -> Path:
    """Move the damaged journal aside, where to is returned; the file itself first: from then on nobody takes it,
    without its log, for what it was, and ``whole`` is what is missing."""
    free = next(number for number in count(1) if not _beside(path, number).exists())
    beside = _beside(path, free if path.exists() else max(1, free - 1))
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(beside.with_name(beside.name + suffix))
    sync(path.parent)
    whole.rename(path)
    sync(path.parent)
    return beside


def _restore_payloads(run_dir: Path, old: sqlite3.Connection, new: sqlite3.Connection, recovery: Recovery) -> None:
    exported = {entry.trajectory: entry for entry in read_index(run_dir)}
    needed = new.execute(f"SELECT trajectory, digest FROM rows WHERE {_NEEDED} ORDER BY rowid").fetchall()  # noqa: S608  written above
    for name, digest in cast("list[tuple[str, bytes]]", needed):
        stored = _readable(lambda name=name: old.execute("SELECT blob FROM payloads WHERE trajectory = ?", (name,)))
        if stored and is_acknowledged(stored[0][0], digest):
            blob = stored[0][0]
            recovery.payloads += 1
        elif (copy := _exported(run_dir, exported.get(name))) is not None and is_acknowledged(copy, digest):
            blob = copy
            recovery.from_export += 1
        else:
            recovery.lost.append(name)
            continue
        new.execute("INSERT INTO payloads VALUES (?, ?)", (name, blob))


def _copy(path: Path, old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> None:
    try:
        rows = old.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  one of _COPIED
    except sqlite3.DatabaseError as error:
        _require_free(path, error)
        raise UserError(
            f"table {table} of {path} cannot be read ({error}), and without it nobody knows what was trained: "
            f"the trajectories themselves are in {path.parent.parent / 'trajectories'}; start a new run"
        ) from error
    if rows:
        new.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608  one of _COPIED


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise UserError(f"there is no journal at {path}: name the run's directory, or the file itself")
    database = sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
    try:
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        _readable(lambda: database.execute("BEGIN EXCLUSIVE"), path)
    except BaseException:
        database.close()
        raise
    return database


def _readable(query: Callable[[], sqlite3.Cursor], path: Path | None = None) -> Sequence[Any]:
    """Its rows; none where the file is damaged there."""
    try:
        return query().fetchall()
    except sqlite3.DatabaseError as error:
        if path is not None:
            _require_free(path, error)
        return []


def _require_free(path: Path, error: sqlite3.DatabaseError) -> None:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        raise UserError(
            f"{path} is open in another process: stop the run first (`longshore monitor {path.parent.parent}` shows it)"
        ) from error


def _exported(run_dir: Path, entry: ExportEntry | None) -> bytes | None:
    try:
        return None if entry is None else read_blob(run_dir, entry)
    except (OSError, codec.CodecError):
        return None


def _beside(path: Path, number: int) -> Path:
    return path.with_suffix(f".damaged-{number}")
