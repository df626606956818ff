"""Restores a starting scheduler from the journal."""

from __future__ import annotations

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.core import SchedulerCore
from actors.scheduler.task_sampler import closings_seen_by
from protocol.journal import ClosedGroup


async def restore_from_journal(core: SchedulerCore, buffer: Remote[TrajectoryBuffer]) -> int:
    """Restore ``core`` from the journal and return the sequence number of the newest closing that it has seen."""
    state = await buffer.call(TrajectoryBuffer.sampler_state)
    at_epoch, at_state = closings_seen_by(state)
    records = (
        await buffer.call(TrajectoryBuffer.task_records, at_epoch),
        await buffer.call(TrajectoryBuffer.task_records, at_state),
    )
    closings: list[ClosedGroup] = []
    progress = await buffer.call(TrajectoryBuffer.wait_progress, at_state, 0.0)
    while progress.closed:
        closings += progress.closed
        progress = await buffer.call(TrajectoryBuffer.wait_progress, progress.seq, 0.0)
    core.restore(state, records, progress, closings)
    core.reopen_groups(await buffer.call(TrajectoryBuffer.open_groups))
    return progress.seq
