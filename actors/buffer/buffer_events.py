"""The buffer's events, and the time since which the disk is full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from protocol.events import EventLog
from protocol.groups import GroupPlan
from protocol.journal import AppendOutcome, ClosedGroup, DiskFullError
from protocol.stream import ReceivedTrajectory
from protocol.stream.messages import RefusalReason

_FULL_PATIENCE_S = 15.0
"""Seconds for which the disk may be full before the run ends."""


@dataclass(frozen=True, slots=True)
class _FullDisk:
    error: DiskFullError
    since: float


class BufferEvents:
    """The buffer's event log."""

    def __init__(self, run_dir: Path, node: str) -> None:
        self._log = EventLog(run_dir, "buffer", node)
        self._full: _FullDisk | None = None

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    async def emit_loop_lag(self) -> Never:
        """Emit the lag of the running event loop, until cancelled."""
        await self._log.emit_loop_lag()

    def emit_opened(self, plan: GroupPlan) -> None:
        """A group is open and durable."""
        self._log.emit("group.opened", group=plan.group, task=plan.task, size=plan.size)

    def emit_closed(self, groups: Sequence[ClosedGroup]) -> None:
        """Groups have closed."""
        for group in groups:
            self._log.emit(
                "group.closed",
                group=group.group,
                task=group.task,
                outcome=group.outcome.value,
                size=group.size,
                rewards=[group.rewards.get(sample) for sample in range(group.size)],
            )

    def emit_stored(self, item: ReceivedTrajectory, outcome: AppendOutcome) -> None:
        """A trajectory was received; a repetition was reported the first time."""
        summary, request = item.summary, item.summary.request
        if outcome in {AppendOutcome.DUPLICATE, AppendOutcome.SUPERSEDED_AGAIN}:
            return
        if outcome is AppendOutcome.UNKNOWN:
            detail = (
                f"no group waits for {request.trajectory_id} of task {request.task!r} with seed {request.seed} and "
                f"{request.group_size} samples"
            )
            self._log.emit("message.refused", reason=outcome.value, sender=item.sender, detail=detail)
            return
        self._log.emit(
            "trajectory.stored",
            trajectory=request.trajectory_id,
            group=request.group,
            sample=request.sample,
            outcome=outcome.value,
            status=summary.status.value,
            reward=summary.reward.total,
            tokens=summary.tokens,
            sampled=summary.sampled,
            versions_min=min(summary.versions, default=-1),
            versions_max=max(summary.versions, default=-1),
        )

    def emit_unroutable(self, sender: str, kind: str) -> None:
        """An answer could not be sent; it costs nothing, because the sender asks again."""
        self._log.emit("ack.unroutable", sender=sender, answer=kind)

    def emit_disconnected(self, peer: str) -> None:
        """A peer disconnected."""
        self._log.emit("peer.disconnected", peer=peer)

    def emit_refused(self, reason: RefusalReason, sender: str, detail: str) -> None:
        """A message was refused."""
        self._log.emit("message.refused", reason=reason.value, sender=sender, detail=detail)

    def mark_disk_full(self, error: DiskFullError) -> None:
        """Nothing that arrives can be written."""
        if self._full is None:
            self._full = _FullDisk(error, time.monotonic())
            self._log.emit("disk.full", reason=str(error))

    def mark_disk_writable(self) -> None:
        """Something was written.  The event repeats the reason, because the first one may not have fitted on the
        disk."""
        if self._full is not None:
            seconds = round(time.monotonic() - self._full.since, 3)
            self._log.emit("disk.freed", seconds=seconds, reason=str(self._full.error))
            self._full = None

    def raise_if_disk_stays_full(self) -> None:
        """Raise DiskFullError if the disk has been full for too long."""
        if self._full is not None and time.monotonic() - self._full.since > _FULL_PATIENCE_S:
            raise self._full.error
