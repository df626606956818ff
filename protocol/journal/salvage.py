"""What can be had of a journal with pages that cannot be read, and what follows for the rest.

A table that cannot be read as a whole is read row by row, each by its key, around the pages that are gone.  What was
on them is rebuilt: a row of ``rows`` from its trajectory, which is in the payloads or in the export, and from an index
that still says what became of it; a group from its trajectories; a ticket from its group and its row.  What is in none
of these is named and counted; :mod:`protocol.journal.lost_payloads` says what follows for its group.

Rows are believed only where they are what the journal could have written: SQLite notices a page that makes no sense,
not bytes that make another one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from protocol import codec
from protocol.errors import LongshoreError, UserError
from protocol.groups import GroupOutcome
from protocol.journal.lost_payloads import count_lost
from protocol.journal.schema import PASSED_OVER, SCHEMA, TRAINED
from protocol.journal.store import UNREADABLE
from protocol.trajectory import DropReason, RolloutRequest, make_trajectory_id

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
_OUTCOMES = {outcome.value for outcome in GroupOutcome}
_REASONS = {None, *(reason.value for reason in DropReason)}
_PASSED_OVER = {DropReason.ALL_STALE.value, DropReason.NONFINITE.value}


class UnreadableJournalError(LongshoreError):
    """Something without which there is no journal cannot be read."""


@dataclass(slots=True)
class JournalSalvage:
    """Fills ``new``, whose tables are there and empty, from ``old``: all but the payloads."""

    old: sqlite3.Connection
    new: sqlite3.Connection
    trajectory: Callable[[str], bytes | None]
    """The packed bytes of a trajectory, wherever they still are."""
    exported: Iterable[str]
    """Trajectories that the export knows: all of them were acknowledged."""
    most_rows: int
    """That a table of a file of this size can have: whatever a damaged page says."""
    rebuilt: int = 0
    """Rows that could not be read, and were made again."""
    lost: list[str] = field(default_factory=list[str])
    """Trajectories that were acknowledged, and of which nothing is left."""
    forgotten: list[int] = field(default_factory=list[int])
    """Groups of which nothing is left: their tasks are skipped."""

    def salvage_rows(self) -> None:
        """Raises Unreadable where nobody can say whose journal it is, or where its tasks stand; UserError for one of
        another longshore."""
        self._copy("meta")
        if self._meta("run_id") is None:
            raise UnreadableJournalError("the page that says whose it is")
        if self._meta("schema") != SCHEMA:
            raise UserError(f"it has schema {self._meta('schema')}, not {SCHEMA}: use the longshore that made it")
        for table in ("groups", "rollout_requests", "trajectories", "superseded_trajectories"):
            self._copy(table)
        if self._meta("sampler_state") is None and self._one("SELECT count(*) FROM rollout_requests"):
            raise UnreadableJournalError("the page that says which task is next")
        self._rebuild_rows()
        self._rebuild_groups()
        self._rebuild_tickets()
        self._recount()

    # -- reading -------------------------------------------------------------------------------------------------

    def _copy(self, table: str) -> None:
        self.new.execute("SAVEPOINT whole")
        try:
            self._insert(table, self.old.execute(f"SELECT * FROM {table}"))  # noqa: S608  named in this file
        except UNREADABLE:
            self.new.execute("ROLLBACK TO whole")
            query = f"SELECT * FROM {table} WHERE {_BY_KEY[table]}"  # noqa: S608  written above
            for key in self._keys(table):
                self._insert(table, self._read(query, key))
        self.new.execute("RELEASE whole")

    def _keys(self, table: str) -> Iterable[object]:
        if table == "meta":
            return _META
        if table == "trajectories":
            return range(1, 1 + self._largest("SELECT max(rowid) FROM trajectories", _NAMES))
        return range(
            1 + self._largest(*(f"SELECT max({key})" for key in ("id FROM groups", "group_id FROM rollout_requests")))
        )

    def _largest(self, *queries: str) -> int:
        found = [row[-1] for query in queries for row in self._read(query)]
        return min(self.most_rows, max((number for number in found if isinstance(number, int)), default=0))

    def _read(self, query: str, *values: object) -> Iterator[Any]:
        """Rows, as far as they can be read."""
        try:
            yield from self.old.execute(query, values)
        except UNREADABLE:
            return

    def _insert(self, table: str, rows: Iterable[Any]) -> None:
        for row in rows:
            if _is_plausible_row(table, row):
                places = ", ".join("?" * len(row))
                self.new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", row)  # noqa: S608  as above

    # -- rebuilding ----------------------------------------------------------------------------------------------

    def _rebuild_rows(self) -> None:
        places = {name: place for name, place in self._read(_NAMES) if not self._knows(name)}
        places |= {name: -1 for name in self.exported if name not in places and not self._knows(name)}
        wanted = set(places.values())
        fates = {place: (state, step) for state, step, place in self._read(_FATES) if place in wanted}
        for name, place in sorted(places.items()):
            blob = self.trajectory(name)
            if blob is None:
                self._lose(name)
                continue
            summary = codec.inspect_blob(blob)
            ticket, reward, status = summary.request, summary.reward.total, summary.status.value
            fate = self._fate(ticket.group, fates.get(place))
            row = (name, ticket.group, ticket.sample, len(blob), summary.sampled, summary.digest)
            self._insert("trajectories", [(*row, reward, int(summary.passed), status, *fate)])
            self.rebuilt += 1

    def _fate(self, group: int, known: tuple[str, int | None] | None) -> tuple[str, int | None, str | None]:
        """State, step and reason of a row, by what is known of them and of its group."""
        outcome, used = self._first("SELECT outcome, used FROM groups WHERE id = ?", group) or ("", 0)
        useless = GroupOutcome(outcome).drop_reason if outcome else None
        if known is None:
            if useless is not None:
                return "dropped", None, useless.value
            if used == PASSED_OVER:
                return "dropped", None, DropReason.ALL_STALE.value
            if used == TRAINED:
                siblings = self._first("SELECT max(step) FROM trajectories WHERE group_id = ?", group)
                return "trained", siblings[0] or self._meta("committed") or 0, None
            return "buffered", None, None
        state, step = known
        if state != "dropped":
            return state, step, None
        if useless is not None:
            return state, step, useless.value
        return state, step, (DropReason.ALL_STALE if used else DropReason.RUN_ENDED).value

    def _rebuild_groups(self) -> None:
        for (group,) in self.new.execute(
            "SELECT group_id FROM trajectories UNION SELECT group_id FROM rollout_requests EXCEPT SELECT id FROM groups"
        ).fetchall():
            names = [
                name for (name,) in self.new.execute("SELECT trajectory FROM trajectories WHERE group_id = ?", (group,))
            ]
            blobs = [blob for blob in map(self.trajectory, names) if blob is not None]
            tickets = [codec.inspect_blob(blob).request for blob in blobs]
            if tickets:
                self._rebuild_group(group, tickets)
                continue
            for name in names:
                self._lose(name)
            self.new.execute("DELETE FROM trajectories WHERE group_id = ?", (group,))
            self.new.execute("DELETE FROM rollout_requests WHERE group_id = ?", (group,))
            self.forgotten.append(group)

    def _rebuild_group(self, group: int, tickets: list[RolloutRequest]) -> None:
        size, seeds = tickets[0].group_size, {ticket.sample: ticket.seed for ticket in tickets}
        rows = self.new.execute(
            "SELECT sample, state, step, reason FROM trajectories WHERE group_id = ?", (group,)
        ).fetchall()
        gone = self.new.execute(
            "SELECT sample FROM rollout_requests WHERE group_id = ? AND state = 'abandoned'", (group,)
        ).fetchall()
        whole = len({row[0] for row in (*rows, *gone)}) == size
        reasons = {reason for _, _, _, reason in rows}
        useless = next((outcome for outcome in _OUTCOMES if outcome in reasons), None)
        outcome = useless or (GroupOutcome.READY if whole else GroupOutcome.OPEN).value
        closed = None if outcome == GroupOutcome.OPEN.value else self._one("SELECT max(closed_seq) FROM groups") + 1
        used = 0
        if any(state == "trained" for _, state, _, _ in rows):
            used = TRAINED
        elif reasons and reasons <= _PASSED_OVER:
            used = PASSED_OVER
        known = orjson.dumps([seeds.get(sample, 0) for sample in range(size)]).decode()
        self._insert("groups", [(group, tickets[0].task, known, size, outcome, closed, used)])

    def _rebuild_tickets(self) -> None:
        short = (
            "SELECT id, size, outcome FROM groups WHERE size > (SELECT count(*) "
            "FROM rollout_requests WHERE group_id = id)"
        )
        for group, size, outcome in self.new.execute(short).fetchall():
            missing = "running" if outcome == GroupOutcome.OPEN.value else "abandoned"
            for sample in range(size):
                arrived = self._first("SELECT 1 FROM trajectories WHERE group_id = ? AND sample = ?", group, sample)
                self._insert("rollout_requests", [(group, sample, "arrived" if arrived else missing, None)])

    def _recount(self) -> None:
        there = self._one("SELECT (SELECT count(*) FROM trajectories) + (SELECT count(*) FROM superseded_trajectories)")
        before = max(there, self._meta("acknowledged") or 0)
        self.new.execute("INSERT OR REPLACE INTO meta VALUES ('acknowledged', ?)", (before,))
        count_lost(self.new, before - there)

    # -- small things --------------------------------------------------------------------------------------------

    def _lose(self, name: str) -> None:
        if name not in self.lost:
            self.lost.append(name)

    def _knows(self, name: str) -> bool:
        return self._first("SELECT 1 FROM trajectories WHERE trajectory = ?", name) is not None

    def _first(self, query: str, *values: object) -> Any:
        return self.new.execute(query, values).fetchone()

    def _one(self, query: str, *values: object) -> int:
        return self._first(query, *values)[0] or 0

    def _meta(self, key: str) -> Any:
        found = self._first("SELECT value FROM meta WHERE key = ?", key)
        return None if found is None else found[0]


_NAMES = "SELECT trajectory, rowid FROM trajectories INDEXED BY sqlite_autoindex_trajectories_1"
_FATES = "SELECT state, step, rowid FROM trajectories INDEXED BY trajectories_state"
"""Both without a look at the table."""


def _is_plausible_row(table: str, row: tuple[Any, ...]) -> bool:
    """Whether the journal could have written ``row``."""
    match table, *row:
        case "meta", str(), _:
            return True
        case "groups", int(), str(), str(seeds), int(size), str(outcome), None | int(), 0 | 1 | 2:
            return outcome in _OUTCOMES and _number_of(seeds) == size
        case "rollout_requests", int(), int(), "running" | "arrived" | "abandoned", None | str():
            return True
        case "trajectories", str(name), int(group), int(sample), int(), int(), bytes(), float(), 0 | 1, str(), *fate:
            state, step, reason = fate
            states = {"buffered", "trained", "dropped"}
            right = state in states and reason in _REASONS and isinstance(step, int | None)
            return right and name == make_trajectory_id(group, sample)
        case "superseded_trajectories", int(), int(), bytes():
            return True
        case _:
            return False


def _number_of(seeds: str) -> int:
    try:
        return len(orjson.loads(seeds))
    except (orjson.JSONDecodeError, TypeError):
        return -1
