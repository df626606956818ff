"""A buffer in memory, for the scheduler and the training loop: groups close when a test says so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actors.buffer.group_progress import GroupProgress
from actors.buffer.task_records import TaskRecord, record_outcome
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import (
    BatchLease,
    ClosedGroup,
    DiskFullError,
    JournalAccounting,
    JournalOpenGroup,
    LeasedGroup,
    LeasedTrajectory,
)
from protocol.trajectory import DropReason, GroupId


class FakeStatistics(NamedTuple):
    wants_checkpoint: bool
    export_failures: int
    dropped_tokens: Mapping[str, Mapping[str, int]]


class FakeBuffer:
    """Keeps what it was told in public fields.  ``full`` is raised by ``open_group`` while it is set."""

    def __init__(self) -> None:
        self.plans: dict[int, GroupPlan] = {}
        self.closed: list[ClosedGroup] = []
        self.abandoned: list[tuple[int, int, str]] = []
        self.groups_of_step: dict[int, list[int]] = {}
        """Step → groups that it used."""
        self.saved_cursor: bytes | None = None
        self.missing: dict[int, tuple[int, ...]] = {}
        self.full: Exception | None = None
        self.may_open = asyncio.Event()
        """``open_group`` is durable once this is set."""
        self.may_open.set()
        self.wants_checkpoint = False
        self.export_failures = 0
        self.passed_over = 0
        """Groups whose batch trained nothing."""
        self.abandon_full = 0
        """The number of further calls of ``abandon_sample`` that find the disk full."""
        self._useless: set[int] = set()
        self.dropped: list[tuple[int | None, str]] = []
        """(step that used it, reason) of trajectories; without a step where none was taken."""
        self.committed: list[int] = []
        self.waiting = 0
        """Callers that wait for progress."""
        self.followed = 0
        """Closings that callers who wait for progress have seen."""
        self.calls: list[str] = []
        self._changed = asyncio.Condition()

    # -- what a test does ----------------------------------------------------------------------------------------

    async def close(self, group: int, outcome: GroupOutcome = GroupOutcome.READY, reward: float | None = None) -> None:
        """``reward`` of each sample, of which that share passed; None for 0 and 1 in turn, a pass being 1."""
        plan = self.plans[group]
        rewards = {sample: float(sample % 2) if reward is None else reward for sample in range(plan.size)}
        async with self._changed:
            passed = frozenset(
                sample
                for sample in rewards
                if (rewards[sample] >= 1 if reward is None else sample < round(reward * plan.size))
            )
            self.closed.append(
                ClosedGroup(len(self.closed) + 1, GroupId(group), plan.task, outcome, plan.size, rewards, passed)
            )
            self._changed.notify_all()

    async def add_ready(self, count: int, size: int = 2) -> None:
        """Open and close ``count`` further groups."""
        for group in range(len(self.plans), len(self.plans) + count):
            self.plans[group] = GroupPlan(GroupId(group), f"task-{group}", tuple(range(size)))
            await self.close(group)

    async def notify_progress(self) -> None:
        """Bytes were freed."""
        async with self._changed:
            self._changed.notify_all()

    # -- the scheduler's side ------------------------------------------------------------------------------------

    async def open_group(self, plan: GroupPlan, cursor: bytes) -> None:
        await self.may_open.wait()
        if self.full is not None:
            raise self.full
        self.plans[plan.group], self.saved_cursor = plan, cursor

    async def sampler_state(self) -> bytes | None:
        return self.saved_cursor

    async def task_records(self, upto: int) -> dict[str, TaskRecord]:
        records: dict[str, TaskRecord] = {}
        for closing in self.closed[:upto]:
            record_outcome(records, closing)
        return records

    async def open_groups(self) -> list[JournalOpenGroup]:
        done = {closing.group for closing in self.closed}
        return [
            JournalOpenGroup(plan, self.missing.get(group, tuple(range(plan.size))))
            for group, plan in self.plans.items()
            if group not in done
        ]

    async def abandon_sample(self, group: GroupId, sample: int, reason: str) -> None:
        if self.abandon_full:
            self.abandon_full -= 1
            raise DiskFullError("no room")
        self.abandoned.append((group, sample, str(reason)))

    async def cancel_group(self, group: GroupId) -> bool:
        await self.close(group, GroupOutcome.CANCELLED)
        return True

    async def wait_progress(self, seen: int, timeout_s: float) -> GroupProgress:
        self.followed = max(self.followed, seen)
        if timeout_s and len(self.closed) <= seen:
            async with self._changed:
                self.waiting += 1
                await self._changed.wait()
                self.waiting -= 1
        new = tuple(closing for closing in self.closed if closing.seq > seen) if seen >= 0 else ()
        dropped = sum(closing.outcome is not GroupOutcome.READY for closing in self.closed)
        used = sum(map(len, self.groups_of_step.values())) + len(self._useless)
        return GroupProgress(len(self.closed), new, dropped, self.passed_over, len(self.closed) - dropped - used)

    # -- the learner's side --------------------------------------------------------------------------------------

    async def lease_batch(self, groups: int) -> BatchLease | None:
        self.calls.append("lease")
        used = {group for spent in self.groups_of_step.values() for group in spent} | self._useless
        ready = [
            closing for closing in self.closed if closing.outcome is GroupOutcome.READY and closing.group not in used
        ][:groups]
        if len(ready) < groups:
            return None
        return BatchLease(
            tuple(
                LeasedGroup(
                    closing.group,
                    closing.task,
                    closing.size,
                    tuple(
                        LeasedTrajectory(f"{closing.group}/{n}", n, reward, 1) for n, reward in closing.rewards.items()
                    ),
                )
                for closing in sorted(ready, key=lambda closing: closing.group)
            )
        )

    async def read_payload(self, lease: BatchLease) -> list[bytes]:
        return [name.encode() for name in lease.trajectory_ids]

    async def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        self.calls.append(f"mark {step}")
        groups = {int(name.partition("/")[0]) for name in (*trained, *dropped)}
        if trained:
            self.groups_of_step[step] = sorted(groups)
        else:
            self._useless |= groups
            self.passed_over += len(groups)
        self.dropped += [(step if trained else None, reason.value) for reason in dropped.values()]
        await self.notify_progress()

    async def commit_step(self, step: int) -> None:
        self.committed.append(step)

    async def compact_before(self, oldest_kept_step: int) -> None:
        pass

    async def accounting(self) -> JournalAccounting:
        acknowledged = sum(len(closing.rewards) for closing in self.closed)
        trained = sum(len(self.plans[group].seeds) for groups in self.groups_of_step.values() for group in groups)
        return JournalAccounting(acknowledged, trained, {}, 0, acknowledged - trained, 0, len(self.abandoned), 0)

    async def statistics(self) -> FakeStatistics:
        """Return counts in which every trajectory has five tokens."""
        counts = Counter(reason for _, reason in self.dropped)
        tokens = {reason: {"4": 5 * count} for reason, count in counts.items()}
        return FakeStatistics(self.wants_checkpoint, self.export_failures, tokens)

    async def rewind_to_step(self, step: int) -> None:
        self.calls.append(f"rewind {step}")
        self.groups_of_step = {each: groups for each, groups in self.groups_of_step.items() if each <= step}
        self.dropped = [(used, reason) for used, reason in self.dropped if used is None or used <= step]
