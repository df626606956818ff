"""The scheduler's side: groups, rollout requests, the task sampler's state."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import orjson

from protocol.cli.formatting import format_bytes
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal.group_closing import GroupClosing
from protocol.journal.values import BudgetFullError, ClosedGroup, DiskFullError, JournalError, JournalOpenGroup
from protocol.trajectory import GroupId

_DISK_COPIES = 3
"""Copies of a trajectory on disk: it may be in the write-ahead log, the database and the export at once."""


class PlanningOperations(GroupClosing):
    """Opens groups before their requests are sent, and abandons samples and groups."""

    def open_group(self, plan: GroupPlan, sampler_state: bytes) -> bool:
        """Make ``plan``, its rollout requests and the task sampler's state after it durable.

        Returns False, and changes nothing, if the same plan is already open.  Raises BudgetFullError or DiskFullError
        when there is no room for the group's largest possible trajectories.
        """
        seeds = orjson.dumps(plan.seeds).decode()
        if known := self._query("SELECT task, seeds FROM groups WHERE id = ?", plan.group):
            if known[0] != (plan.task, seeds):
                raise JournalError(f"group {plan.group} is already open with another plan")
            return False
        if self._number("ended"):
            raise JournalError("the run has ended: rewind to a checkpoint's step to go on")
        self._require_room(plan)
        with self._transaction():
            self._db.execute(
                "INSERT INTO groups (id, task, seeds, size, outcome) VALUES (?, ?, ?, ?, ?)",
                (plan.group, plan.task, seeds, plan.size, GroupOutcome.OPEN.value),
            )
            self._db.executemany(
                "INSERT INTO rollout_requests (group_id, sample, state) VALUES (?, ?, 'running')",
                [(plan.group, sample) for sample in range(plan.size)],
            )
            self._set("sampler_state", sampler_state)
        return True

    def _require_room(self, plan: GroupPlan) -> None:
        settings = self._settings
        needed, reserved = plan.size * settings.max_trajectory_bytes, self._reserved()
        used, budget = reserved + self._live(), f"buffer.budget_bytes = {format_bytes(settings.budget_bytes)}"
        if needed > settings.budget_bytes:
            raise BudgetFullError(
                f"one group may need {format_bytes(needed)}, more than {budget}: raise that or lower "
                "max_trajectory_bytes"
            )
        if used + needed > settings.budget_bytes:
            raise BudgetFullError(
                f"group {plan.group} may need {format_bytes(needed)}, and {format_bytes(used)} of {budget} are taken: "
                "the next step and checkpoint free them"
            )
        folder, largest = self.path.parent, (reserved + needed) * _DISK_COPIES
        free = self._free(folder)
        if free < largest + settings.disk_floor_bytes:
            raise DiskFullError(
                f"{folder} has {format_bytes(free)} free; the open groups and one more may need "
                f"{format_bytes(largest)} beside the "
                f"reserve of {format_bytes(settings.disk_floor_bytes)}: free some space "
                f"(du -xh {folder.parent} | sort -h | tail)"
            )

    def read_sampler_state(self) -> bytes | None:
        """Return the task sampler's state after the newest group."""
        return cast("bytes | None", self._get("sampler_state"))

    def list_open_groups(self) -> list[JournalOpenGroup]:
        """Return the groups that wait for samples, oldest first."""
        if self._number("ended"):
            return []
        groups = self._query("SELECT id, task, seeds FROM groups WHERE outcome = 'open' ORDER BY id")
        with self._checked_values():
            plans = [GroupPlan(GroupId(group), task, tuple(orjson.loads(seeds))) for group, task, seeds in groups]
        missing = "SELECT sample FROM rollout_requests WHERE group_id = ? AND state = 'running' ORDER BY sample"
        return [
            JournalOpenGroup(plan, tuple(sample for (sample,) in self._query(missing, plan.group))) for plan in plans
        ]

    def abandon_sample(self, group: GroupId, sample: int, reason: str) -> ClosedGroup | None:
        """Abandon a running sample.  Returns the closed group if it was the last one running; else None."""
        if self._number("ended"):
            return None
        with self._transaction():
            changed = self._db.execute(
                "UPDATE rollout_requests SET state = 'abandoned', reason = ? WHERE group_id = ? "
                "AND sample = ? AND state = 'running'",
                (reason, group, sample),
            )
            closed = self._close_complete([group]) if changed.rowcount else []
            self._forget_dropped()
        return closed[0] if closed else None

    def cancel_group(self, group: GroupId, reason: str) -> ClosedGroup | None:
        """Abandon an open group and drop its trajectories.  Returns None, and changes nothing, if it is not open."""
        if self._number("ended") or not self._query("SELECT 1 FROM groups WHERE id = ? AND outcome = 'open'", group):
            return None
        with self._transaction():
            self._db.execute(
                "UPDATE rollout_requests SET state = 'abandoned', reason = ? WHERE group_id = ? AND state = 'running'",
                (reason, group),
            )
            closed = self._close([replace(each, outcome=GroupOutcome.CANCELLED) for each in self._closings([group])])
            self._forget_dropped()
        return closed[0]

    def list_closed_since(self, seen: int, limit: int = 1000) -> list[ClosedGroup]:
        """Return at most ``limit`` groups that closed after the ``seen``-th closing, in order."""
        groups = self._query(
            "SELECT closed_seq, id, task, outcome, size FROM groups WHERE closed_seq > ? ORDER BY closed_seq LIMIT ?",
            seen,
            limit,
        )
        rewards, passed = self._rewards([GroupId(group) for _, group, *_ in groups])
        with self._checked_values():
            return [
                ClosedGroup(seq, group, task, GroupOutcome(outcome), size, rewards[group], frozenset(passed[group]))
                for seq, group, task, outcome, size in groups
            ]
