"""Rebuilds the rows of a damaged journal that :mod:`protocol.journal.table_copy` could not read.

A trajectory's row is rebuilt from its packed bytes, in the payloads or the export, and from the index that holds its
state; a group from its trajectories; a rollout request from its group and its trajectory.  Anything that is in none of
these is reported and counted; :mod:`protocol.journal.lost_payloads` repairs its group.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from protocol import codec
from protocol.errors import LongshoreError, UserError
from protocol.groups import GroupOutcome
from protocol.journal.lost_payloads import count_lost
from protocol.journal.schema import PASSED_OVER, SCHEMA, TRAINED
from protocol.journal.table_copy import INDEXED_NAMES, INDEXED_STATES, OUTCOMES, JournalTableCopy
from protocol.trajectory import DropReason, RolloutRequest

_PASSED_OVER = {DropReason.ALL_STALE.value, DropReason.NONFINITE.value}


class UnreadableJournalError(LongshoreError):
    """Part of the journal is unreadable that cannot be rebuilt."""


class JournalSalvage:
    """Fills ``new``, which has empty tables, from ``old``: everything but the payloads."""

    def __init__(
        self,
        old: sqlite3.Connection,
        new: sqlite3.Connection,
        find_trajectory: Callable[[str], bytes | None],
        exported: Iterable[str],
        max_rows: int,
    ) -> None:
        """``find_trajectory`` returns the packed bytes of a trajectory from any intact copy; ``exported`` are the
        trajectories in the export, all of which were acknowledged; ``max_rows`` bounds the rows of a table."""
        self.new, self._tables = new, JournalTableCopy(old, new, max_rows)
        self._find_trajectory, self._exported = find_trajectory, exported
        self.rebuilt = 0
        """Rows that could not be read and were rebuilt."""
        self.lost: list[str] = []
        """Acknowledged trajectories without any copy."""
        self.forgotten: list[int] = []
        """Groups of which nothing is left: their tasks are skipped."""

    def salvage_rows(self) -> None:
        """Copy and rebuild all rows.

        Raises UnreadableJournalError if the run's id or the sampler's state is lost, UserError for another schema.
        """
        self._tables.copy_table("meta")
        if self._meta("run_id") is None:
            raise UnreadableJournalError("the page with the run's id")
        if self._meta("schema") != SCHEMA:
            raise UserError(f"it has schema {self._meta('schema')}, not {SCHEMA}: use the longshore that made it")
        for table in ("groups", "rollout_requests", "trajectories", "superseded_trajectories"):
            self._tables.copy_table(table)
        if self._meta("sampler_state") is None and self._number("SELECT count(*) FROM rollout_requests"):
            raise UnreadableJournalError("the page with the task sampler's state")
        self._rebuild_trajectories()
        self._rebuild_groups()
        self._rebuild_requests()
        self._recount()

    def _rebuild_trajectories(self) -> None:
        rowids = {name: rowid for name, rowid in self._tables.read_rows(INDEXED_NAMES) if not self._knows(name)}
        rowids |= {name: -1 for name in self._exported if name not in rowids and not self._knows(name)}
        wanted = set(rowids.values())
        states = {
            rowid: (state, step) for state, step, rowid in self._tables.read_rows(INDEXED_STATES) if rowid in wanted
        }
        for name, rowid in sorted(rowids.items()):
            blob = self._find_trajectory(name)
            if blob is None:
                self._lose(name)
                continue
            summary = codec.inspect_blob(blob)
            request, reward, status = summary.request, summary.reward.total, summary.status.value
            state = self._state(request.group, states.get(rowid))
            row = (name, request.group, request.sample, len(blob), summary.sampled, summary.digest)
            self._tables.insert_rows("trajectories", [(*row, reward, int(summary.passed), status, *state)])
            self.rebuilt += 1

    def _state(self, group: int, known: tuple[str, int | None] | None) -> tuple[str, int | None, str | None]:
        """Return state, step and reason of a row, from its index entry and its group."""
        outcome, used = self._first("SELECT outcome, used FROM groups WHERE id = ?", group) or ("", 0)
        drop_outcome = GroupOutcome(outcome).drop_reason if outcome else None
        if known is None:
            if drop_outcome is not None:
                return "dropped", None, drop_outcome.value
            if used == PASSED_OVER:
                return "dropped", None, DropReason.ALL_STALE.value
            if used == TRAINED:
                siblings = self._first("SELECT max(step) FROM trajectories WHERE group_id = ?", group)
                return "trained", siblings[0] or self._meta("committed") or 0, None
            return "buffered", None, None
        state, step = known
        if state != "dropped":
            return state, step, None
        if drop_outcome is not None:
            return state, step, drop_outcome.value
        return state, step, (DropReason.ALL_STALE if used else DropReason.RUN_ENDED).value

    def _rebuild_groups(self) -> None:
        for (group,) in self.new.execute(
            "SELECT group_id FROM trajectories UNION SELECT group_id FROM rollout_requests EXCEPT SELECT id FROM groups"
        ).fetchall():
            names = [
                name for (name,) in self.new.execute("SELECT trajectory FROM trajectories WHERE group_id = ?", (group,))
            ]
            blobs = [blob for blob in map(self._find_trajectory, names) if blob is not None]
            requests = [codec.inspect_blob(blob).request for blob in blobs]
            if requests:
                self._rebuild_group(group, requests)
                continue
            for name in names:
                self._lose(name)
            self.new.execute("DELETE FROM trajectories WHERE group_id = ?", (group,))
            self.new.execute("DELETE FROM rollout_requests WHERE group_id = ?", (group,))
            self.forgotten.append(group)

    def _rebuild_group(self, group: int, requests: list[RolloutRequest]) -> None:
        size, seeds = requests[0].group_size, {request.sample: request.seed for request in requests}
        rows = self.new.execute(
            "SELECT sample, state, step, reason FROM trajectories WHERE group_id = ?", (group,)
        ).fetchall()
        abandoned = self.new.execute(
            "SELECT sample FROM rollout_requests WHERE group_id = ? AND state = 'abandoned'", (group,)
        ).fetchall()
        whole = len({row[0] for row in (*rows, *abandoned)}) == size
        reasons = {reason for _, _, _, reason in rows}
        drop_outcome = next((outcome for outcome in OUTCOMES if outcome in reasons), None)
        outcome = drop_outcome or (GroupOutcome.READY if whole else GroupOutcome.OPEN).value
        closed = None if outcome == GroupOutcome.OPEN.value else self._number("SELECT max(closed_seq) FROM groups") + 1
        used = 0
        if any(state == "trained" for _, state, _, _ in rows):
            used = TRAINED
        elif reasons and reasons <= _PASSED_OVER:
            used = PASSED_OVER
        known = orjson.dumps([seeds.get(sample, 0) for sample in range(size)]).decode()
        self._tables.insert_rows("groups", [(group, requests[0].task, known, size, outcome, closed, used)])

    def _rebuild_requests(self) -> None:
        short = (
            "SELECT id, size, outcome FROM groups WHERE size > (SELECT count(*) "
            "FROM rollout_requests WHERE group_id = id)"
        )
        for group, size, outcome in self.new.execute(short).fetchall():
            missing = "running" if outcome == GroupOutcome.OPEN.value else "abandoned"
            for sample in range(size):
                arrived = self._first("SELECT 1 FROM trajectories WHERE group_id = ? AND sample = ?", group, sample)
                self._tables.insert_rows("rollout_requests", [(group, sample, "arrived" if arrived else missing, None)])

    def _recount(self) -> None:
        there = self._number(
            "SELECT (SELECT count(*) FROM trajectories) + (SELECT count(*) FROM superseded_trajectories)"
        )
        before = max(there, self._meta("acknowledged") or 0)
        self.new.execute("INSERT OR REPLACE INTO meta VALUES ('acknowledged', ?)", (before,))
        count_lost(self.new, before - there)

    def _lose(self, name: str) -> None:
        if name not in self.lost:
            self.lost.append(name)

    def _knows(self, name: str) -> bool:
        return self._first("SELECT 1 FROM trajectories WHERE trajectory = ?", name) is not None

    def _first(self, query: str, *values: object) -> Any:
        return self.new.execute(query, values).fetchone()

    def _number(self, query: str, *values: object) -> int:
        return self._first(query, *values)[0] or 0

    def _meta(self, key: str) -> Any:
        found = self._first("SELECT value FROM meta WHERE key = ?", key)
        return None if found is None else found[0]
