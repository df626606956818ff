"""Leases the batch of the next step: waits until enough groups have closed or training is to end.

While it waits it runs step hooks, lets a parity check be sampled and counts the groups that close.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.control.step_hooks import StepHooks, StopReason
from launch.training.parity_checker import ParityChecker
from launch.training.state import TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from launch.training.stop_conditions import StopConditions
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.journal import BatchLease
from protocol.staleness import StaleTokenPolicy, may_take_step

_LEASE_WAIT_S = 5.0


class LeasedBatch(NamedTuple):
    lease: BatchLease
    wait_s: float
    """Seconds that training waited for it, without pauses."""


@dataclass(slots=True, kw_only=True)
class BatchLeaser:
    """Waits for the batch of the next step and leases it from the buffer."""

    state: TrainingState
    buffer: Remote[TrajectoryBuffer]
    scheduler: Remote[RolloutScheduler]
    writer: StateWriter
    recorder: StepRecorder
    parity: ParityChecker
    step_hooks: StepHooks
    stop_conditions: StopConditions
    events: EventLog
    activity: ActivityLog

    async def lease_batch(self) -> LeasedBatch | None:
        """Lease the oldest full batch of closed groups once there is one; None if training ends before."""
        state = self.state
        if state.step >= state.config.run.steps:
            state.stop_reason = state.stop_reason or StopReason.STEPS
            return None
        waiting_since, paused_before = time.monotonic(), self.step_hooks.paused_s
        with self.activity.track("waiting"):
            lease = await self._wait_for_batch()
        if lease is None:
            return None
        return LeasedBatch(lease, time.monotonic() - waiting_since - (self.step_hooks.paused_s - paused_before))

    async def _wait_for_batch(self) -> BatchLease | None:
        state, version = self.state, self.writer.publisher.version
        while (stops_because := await self._run_hooks_or_stop()) is None:
            self.writer.raise_if_failed()
            await self.parity.sample_for_parity(state.step, version)
            await self.recorder.collect_closed_groups(0.0)
            if not (groups := await self._groups_to_lease()):
                state.stop_reason, stops_because = StopReason.DRAINED, "all open groups are trained"
                break
            lease = await self.buffer.call(TrajectoryBuffer.lease_batch, groups)
            if lease is not None and await self._keeps_running_groups_fresh(lease):
                return lease
            await self._free_journal_space()
            await self.recorder.collect_closed_groups(_LEASE_WAIT_S)
        text = f"training ends after step {state.step} of {state.config.run.steps}: {stops_because}"
        self.events.emit("alert.raised", name="training_ends", text=text)
        return None

    async def _run_hooks_or_stop(self) -> str | None:
        """Run the hooks that wait for a point between two steps; return why training is to end, if it is."""
        await self.step_hooks.run_pending()
        await self.writer.release_device()
        return await self.stop_conditions.find_met()

    async def _groups_to_lease(self) -> int:
        """Return the number of groups of the next batch.  The last one of a drained run may be smaller; 0 ends it."""
        full = self.state.batch_fill.groups_to_lease
        if (
            self.step_hooks.requested_stop is not StopReason.DRAINED
            or (await self.scheduler.call(RolloutScheduler.statistics)).open_groups
        ):
            return full
        return min(full, (await self.buffer.call(TrajectoryBuffer.wait_progress, -1, 0.0)).ready)

    async def _free_journal_space(self) -> None:
        """If the journal's budget keeps groups from opening, checkpoint the steps since the last checkpoint, whose
        trajectories the journal then drops; otherwise the next batch might never fill."""
        if (
            self.writer.checkpoint_manager.newest_step < self.state.step
            and (await self.scheduler.call(RolloutScheduler.statistics)).budget_full
        ):
            await self.writer.checkpoint_in_background()
            await self.writer.release_device()
            await self.writer.wait_saved()

    async def _keeps_running_groups_fresh(self, lease: BatchLease) -> bool:
        """Return whether, under the policy ``wait``, no running episode becomes too old by a step on ``lease``."""
        staleness = self.state.config.staleness
        if staleness.policy is not StaleTokenPolicy.WAIT:
            return True
        groups = [group.group for group in lease.groups]
        oldest = await self.scheduler.call(RolloutScheduler.oldest_running_step, self.state.step, groups)
        return may_take_step(self.state.step, oldest, staleness.max_staleness)
