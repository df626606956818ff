"""Copies the readable rows of a journal's tables around damaged pages.

A table that cannot be read as a whole is read row by row, by key.  A row is copied only if the journal could have
written it: SQLite detects pages that make no sense, but not bytes that make another valid page.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from protocol.groups import GroupOutcome
from protocol.journal.store import UNREADABLE
from protocol.trajectory import DropReason, make_trajectory_id

OUTCOMES = {outcome.value for outcome in GroupOutcome}
INDEXED_NAMES = "SELECT trajectory, rowid FROM trajectories INDEXED BY sqlite_autoindex_trajectories_1"
INDEXED_STATES = "SELECT state, step, rowid FROM trajectories INDEXED BY trajectories_state"
"""Queries that read only an index, not the table."""
_META = (
    "schema",
    "run_id",
    "sampler_state",
    "acknowledged",
    "lost",
    "unknown",
    "committed",
    "compacted",
    "ended",
    "owner.port",
)
_BY_KEY = {
    "meta": "key = ?",
    "groups": "id = ?",
    "rollout_requests": "group_id = ?",
    "trajectories": "rowid = ?",
    "superseded_trajectories": "group_id = ?",
}
_REASONS = {None, *(reason.value for reason in DropReason)}


@dataclass(slots=True)
class JournalTableCopy:
    """Copies tables from ``old``, a damaged journal, into ``new``, which has the same tables."""

    old: sqlite3.Connection
    new: sqlite3.Connection
    max_rows: int
    """Most rows that a table of a file of this size can have, whatever a damaged page says."""

    def copy_table(self, table: str) -> None:
        """Copy all plausible rows of a table."""
        self.new.execute("SAVEPOINT whole")
        try:
            self.insert_rows(table, self.old.execute(f"SELECT * FROM {table}"))  # noqa: S608  named by our own code
        except UNREADABLE:
            self.new.execute("ROLLBACK TO whole")
            query = f"SELECT * FROM {table} WHERE {_BY_KEY[table]}"  # noqa: S608  written above
            for key in self._keys(table):
                self.insert_rows(table, self.read_rows(query, key))
        self.new.execute("RELEASE whole")

    def read_rows(self, query: str, *values: object) -> Iterator[Any]:
        """Yield the rows of a query up to the first that cannot be read."""
        try:
            yield from self.old.execute(query, values)
        except UNREADABLE:
            return

    def insert_rows(self, table: str, rows: Iterable[Any]) -> None:
        """Insert the plausible ones of ``rows`` that are not there yet."""
        for row in rows:
            if _is_plausible_row(table, row):
                marks = ", ".join("?" * len(row))
                self.new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608  as above

    def _keys(self, table: str) -> Iterable[object]:
        if table == "meta":
            return _META
        if table == "trajectories":
            return range(1, 1 + self._largest("SELECT max(rowid) FROM trajectories", INDEXED_NAMES))
        return range(
            1 + self._largest(*(f"SELECT max({key})" for key in ("id FROM groups", "group_id FROM rollout_requests")))
        )

    def _largest(self, *queries: str) -> int:
        found = [row[-1] for query in queries for row in self.read_rows(query)]
        return min(self.max_rows, max((number for number in found if isinstance(number, int)), default=0))


def _is_plausible_row(table: str, row: tuple[Any, ...]) -> bool:
    """Return whether the journal could have written ``row``."""
    match table, *row:
        case "meta", str(), _:
            return True
        case "groups", int(), str(), str(seeds), int(size), str(outcome), None | int(), 0 | 1 | 2:
            return outcome in OUTCOMES and _seed_count(seeds) == size
        case "rollout_requests", int(), int(), "running" | "arrived" | "abandoned", None | str():
            return True
        case "trajectories", str(name), int(group), int(sample), int(), int(), bytes(), float(), 0 | 1, str(), *fate:
            state, step, reason = fate
            states = {"buffered", "trained", "dropped"}
            valid = state in states and reason in _REASONS and isinstance(step, int | None)
            return valid and name == make_trajectory_id(group, sample)
        case "superseded_trajectories", int(), int(), bytes():
            return True
        case _:
            return False


def _seed_count(seeds: str) -> int:
    try:
        return len(orjson.loads(seeds))
    except (orjson.JSONDecodeError, TypeError):
        return -1
