"""The conductor's side: groups, tickets, the task cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import orjson

from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal.closing import Closing
from protocol.journal.store import size
from protocol.journal.values import BudgetFull, DiskFull, GroupClosed, JournalError, OpenGroup
from protocol.trajectory import GroupId

_DISK_COPIES = 3
"""A trajectory may stand in the write-ahead log, in the database and in the export at once."""


class Planning(Closing):
    """What is decided before a ticket leaves, and what is given up."""

    def open_group(self, plan: GroupPlan, cursor: bytes) -> bool:
        """Make ``plan``, its tickets and the task cursor's state after it durable.  The same plan again changes
        nothing, and gives False.

        Raises BudgetFull or DiskFull when there is no room for the group's largest possible trajectories.
        """
        seeds = orjson.dumps(plan.seeds).decode()
        if known := self._all("SELECT task, seeds FROM groups WHERE id = ?", plan.group):
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
                "INSERT INTO tickets (grp, sample, state) VALUES (?, ?, 'out')",
                [(plan.group, sample) for sample in range(plan.size)],
            )
            self._set("cursor", cursor)
        return True

    def _require_room(self, plan: GroupPlan) -> None:
        settings = self._settings
        needed, reserved = plan.size * settings.max_trajectory_bytes, self._reserved()
        used, budget = reserved + self._live(), f"buffer.budget_bytes = {size(settings.budget_bytes)}"
        if needed > settings.budget_bytes:
            raise BudgetFull(
                f"one group may need {size(needed)}, more than {budget}: raise that or lower max_trajectory_bytes"
            )
        if used + needed > settings.budget_bytes:
            raise BudgetFull(
                f"group {plan.group} may need {size(needed)}, and {size(used)} of {budget} are taken: "
                "the next step and checkpoint free them"
            )
        folder, largest = self.path.parent, (reserved + needed) * _DISK_COPIES
        free = self._free(folder)
        if free < largest + settings.disk_floor_bytes:
            raise DiskFull(
                f"{folder} has {size(free)} free; the open groups and one more may need {size(largest)} beside the "
                f"reserve of {size(settings.disk_floor_bytes)}: free some space "
                f"(du -xh {folder.parent} | sort -h | tail)"
            )

    def cursor(self) -> bytes | None:
        """The task cursor's state of the newest group."""
        return cast("bytes | None", self._get("cursor"))

    def open_groups(self) -> list[OpenGroup]:
        """Groups that wait for samples, oldest first."""
        if self._number("ended"):
            return []
        groups = self._all("SELECT id, task, seeds FROM groups WHERE outcome = 'open' ORDER BY id")
        with self._as_written():
            plans = [GroupPlan(GroupId(group), task, tuple(orjson.loads(seeds))) for group, task, seeds in groups]
        missing = "SELECT sample FROM tickets WHERE grp = ? AND state = 'out' ORDER BY sample"
        return [OpenGroup(plan, tuple(sample for (sample,) in self._all(missing, plan.group))) for plan in plans]

    def abandon(self, group: GroupId, sample: int, reason: str) -> GroupClosed | None:
        """Give one sample up.  Returns the closing if it was the last one out; changes nothing if it is not out."""
        if self._number("ended"):
            return None
        with self._transaction():
            changed = self._db.execute(
                "UPDATE tickets SET state = 'abandoned', reason = ? WHERE grp = ? AND sample = ? AND state = 'out'",
                (reason, group, sample),
            )
            closed = self._close_complete([group]) if changed.rowcount else []
            self._forget_dropped()
        return closed[0] if closed else None

    def cancel(self, group: GroupId, reason: str) -> GroupClosed | None:
        """Give an open group up, with what has arrived of it.  None, and nothing changes, where it is not open."""
        if self._number("ended") or not self._all("SELECT 1 FROM groups WHERE id = ? AND outcome = 'open'", group):
            return None
        with self._transaction():
            self._db.execute(
                "UPDATE tickets SET state = 'abandoned', reason = ? WHERE grp = ? AND state = 'out'", (reason, group)
            )
            closed = self._close([replace(each, outcome=GroupOutcome.CANCELLED) for each in self._closings([group])])
            self._forget_dropped()
        return closed[0]

    def closed_since(self, seen: int, limit: int = 1000) -> list[GroupClosed]:
        """Closings after the ``seen``-th, in order, at most ``limit``."""
        groups = self._all(
            "SELECT closed_seq, id, task, outcome, size FROM groups WHERE closed_seq > ? ORDER BY closed_seq LIMIT ?",
            seen,
            limit,
        )
        rewards, passed = self._rewards([GroupId(group) for _, group, *_ in groups])
        with self._as_written():
            return [
                GroupClosed(seq, group, task, GroupOutcome(outcome), size, rewards[group], frozenset(passed[group]))
                for seq, group, task, outcome, size in groups
            ]
