"""The conductor's side: groups, tickets, the task cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import orjson

from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal.group_closing import GroupClosing
from protocol.journal.store import format_size
from protocol.journal.values import BudgetFullError, ClosedGroup, DiskFullError, JournalError, JournalOpenGroup
from protocol.trajectory import GroupId

_DISK_COPIES = 3
"""A trajectory may stand in the write-ahead log, in the database and in the export at once."""


class PlanningOperations(GroupClosing):
    """What is decided before a ticket leaves, and what is given up."""

    def open_group(self, plan: GroupPlan, sampler_state: bytes) -> bool:
        """Make ``plan``, its tickets and the task cursor's state after it durable.  The same plan again changes
        nothing, and gives False.

        Raises BudgetFull or DiskFull when there is no room for the group's largest possible trajectories.
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
        used, budget = reserved + self._live(), f"buffer.budget_bytes = {format_size(settings.budget_bytes)}"
        if needed > settings.budget_bytes:
            raise BudgetFullError(
                f"one group may need {format_size(needed)}, more than {budget}: raise that or lower "
                "max_trajectory_bytes"
            )
        if used + needed > settings.budget_bytes:
            raise BudgetFullError(
                f"group {plan.group} may need {format_size(needed)}, and {format_size(used)} of {budget} are taken: "
                "the next step and checkpoint free them"
            )
        folder, largest = self.path.parent, (reserved + needed) * _DISK_COPIES
        free = self._free(folder)
        if free < largest + settings.disk_floor_bytes:
            raise DiskFullError(
                f"{folder} has {format_size(free)} free; the open groups and one more may need "
                f"{format_size(largest)} beside the "
                f"reserve of {format_size(settings.disk_floor_bytes)}: free some space "
                f"(du -xh {folder.parent} | sort -h | tail)"
            )

    def read_sampler_state(self) -> bytes | None:
        """The task cursor's state of the newest group."""
        return cast("bytes | None", self._get("sampler_state"))

    def list_open_groups(self) -> list[JournalOpenGroup]:
        """Groups that wait for samples, oldest first."""
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
        """Give one sample up.  Returns the closing if it was the last one out; changes nothing if it is not out."""
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
        """Give an open group up, with what has arrived of it.  None, and nothing changes, where it is not open."""
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
        """Closings after the ``seen``-th, in order, at most ``limit``."""
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
