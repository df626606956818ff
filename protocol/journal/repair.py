"""Looking at a journal that nobody has open, and making a new one of a damaged one.

What can be read is kept.  A payload whose bytes are gone or wrong is taken from the export, which the buffer writes
beside the journal; a trajectory that is in neither is named, its row and its place in the books stay as they are, and a
batch that needs it will say so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from protocol import codec
from protocol.errors import UserError
from protocol.export import ExportEntry, read_blob, read_index
from protocol.filesystem import sync
from protocol.journal.schema import TABLES
from protocol.journal.store import PAGE_BYTES

FILE = Path("buffer") / "journal.sqlite"
"""In a run directory."""
_COPIED = ("meta", "groups", "tickets", "rows", "superseded")
_NEEDED = "state = 'held' OR step > coalesce((SELECT value FROM meta WHERE key = 'compacted'), 0)"
"""Rows whose payload some kept checkpoint may still ask for."""


@dataclass(slots=True)
class Findings:
    """What a check found."""

    damage: list[str] = field(default_factory=list[str])
    """SQLite's own words, none where the file is whole."""
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
                if blob is None:
                    found.missing_payloads += [name] if needed else []
                elif _is(blob, digest):
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
    fresh = path.with_suffix(".recovered")
    fresh.unlink(missing_ok=True)
    with closing(_open(path)) as old, closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        new.execute(f"PRAGMA page_size={PAGE_BYTES}")
        new.execute("PRAGMA synchronous=FULL")
        new.execute("BEGIN")
        for statement in TABLES.split(";"):
            new.execute(statement)
        for table in _COPIED:
            _copy(path, old, new, table)
        recovery = Recovery(_beside(path), cast("int", new.execute("SELECT count(*) FROM rows").fetchone()[0]))
        _restore_payloads(run_dir, old, new, recovery)
        new.execute("COMMIT")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(recovery.kept_beside.with_name(recovery.kept_beside.name + suffix))
    fresh.rename(path)
    sync(path.parent)
    return recovery


def _restore_payloads(run_dir: Path, old: sqlite3.Connection, new: sqlite3.Connection, recovery: Recovery) -> None:
    exported = {entry.trajectory: entry for entry in read_index(run_dir)}
    needed = new.execute(f"SELECT trajectory, digest FROM rows WHERE {_NEEDED} ORDER BY rowid").fetchall()  # noqa: S608  written above
    for name, digest in cast("list[tuple[str, bytes]]", needed):
        stored = _readable(lambda name=name: old.execute("SELECT blob FROM payloads WHERE trajectory = ?", (name,)))
        if stored and _is(stored[0][0], digest):
            blob = stored[0][0]
            recovery.payloads += 1
        elif (copy := _exported(run_dir, exported.get(name))) is not None and _is(copy, digest):
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


def _is(blob: bytes, digest: bytes) -> bool:
    """Whether ``blob`` is the whole trajectory that was acknowledged."""
    try:
        return codec.inspect(codec.unpack(blob), max_bytes=len(blob)).digest == digest
    except codec.CodecError:
        return False


def _beside(path: Path) -> Path:
    return next(name for name in _names(path) if not name.exists())


def _names(path: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield path.with_suffix(f".damaged-{number}")
        number += 1
