"""A buffer in memory, for the conductor and the training loop: groups close when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from actors.buffer import Progress
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import GroupClosed, Lease, LeasedGroup, LeasedRow, OpenGroup
from protocol.trajectory import DropReason, GroupId


class FakeBuffer:
    """Keeps what it was told in public fields.  ``full`` is raised by ``open_group`` while it is set."""

    def __init__(self) -> None:
        self.plans: dict[int, GroupPlan] = {}
        self.closed: list[GroupClosed] = []
        self.abandoned: list[tuple[int, int, str]] = []
        self.spent: dict[int, list[int]] = {}
        """Step → groups that it used."""
        self.saved_cursor: bytes | None = None
        self.missing: dict[int, tuple[int, ...]] = {}
        self.full: Exception | None = None
        self.gate = asyncio.Event()
        """``open_group`` is durable once this is set."""
        self.gate.set()
        self.calls: list[str] = []
        self._changed = asyncio.Condition()

    # -- what a test does ----------------------------------------------------------------------------------------

    async def close(self, group: int, outcome: GroupOutcome = GroupOutcome.READY) -> None:
        plan = self.plans[group]
        rewards = {sample: float(sample % 2) for sample in range(plan.size)}
        async with self._changed:
            self.closed.append(
                GroupClosed(len(self.closed) + 1, GroupId(group), plan.task, outcome, plan.size, rewards)
            )
            self._changed.notify_all()

    async def free(self) -> None:
        """Bytes were freed."""
        async with self._changed:
            self._changed.notify_all()

    # -- the conductor's side ------------------------------------------------------------------------------------

    async def open_group(self, plan: GroupPlan, cursor: bytes) -> None:
        await self.gate.wait()
        if self.full is not None:
            raise self.full
        self.plans[plan.group], self.saved_cursor = plan, cursor

    async def cursor(self) -> bytes | None:
        return self.saved_cursor

    async def open_groups(self) -> list[OpenGroup]:
        done = {closing.group for closing in self.closed}
        return [
            OpenGroup(plan, self.missing.get(group, tuple(range(plan.size))))
            for group, plan in self.plans.items()
            if group not in done
        ]

    async def abandon(self, group: GroupId, sample: int, reason: str) -> None:
        self.abandoned.append((group, sample, str(reason)))

    async def wait_progress(self, seen: int, timeout_s: float) -> Progress:
        if timeout_s and len(self.closed) <= seen:
            async with self._changed:
                await self._changed.wait()
        new = tuple(closing for closing in self.closed if closing.seq > seen) if seen >= 0 else ()
        dropped = sum(closing.outcome is not GroupOutcome.READY for closing in self.closed)
        used = sum(map(len, self.spent.values()))
        return Progress(
            len(self.closed),
            new,
            len(self.plans),
            dropped,
            len(self.plans) - len(self.closed),
            len(self.closed) - dropped - used,
            0,
        )

    # -- the learner's side --------------------------------------------------------------------------------------

    async def lease(self, groups: int) -> Lease | None:
        self.calls.append("lease")
        used = {group for spent in self.spent.values() for group in spent}
        ready = [
            closing for closing in self.closed if closing.outcome is GroupOutcome.READY and closing.group not in used
        ][:groups]
        if len(ready) < groups:
            return None
        return Lease(
            tuple(
                LeasedGroup(
                    closing.group,
                    closing.task,
                    closing.size,
                    tuple(LeasedRow(f"{closing.group}/{n}", n, reward, 1) for n, reward in closing.rewards.items()),
                )
                for closing in sorted(ready, key=lambda closing: closing.group)
            )
        )

    async def payload(self, lease: Lease) -> list[bytes]:
        return [name.encode() for name in lease.trajectories]

    async def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        self.calls.append(f"mark {step}")
        self.spent[step] = sorted({int(name.partition("/")[0]) for name in (*trained, *dropped)})
        await self.free()

    async def rewind(self, step: int) -> None:
        self.calls.append(f"rewind {step}")
        self.spent = {each: groups for each, groups in self.spent.items() if each <= step}
