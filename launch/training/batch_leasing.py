"""Leases the batch of the next step: waits until enough groups have closed or training is to end.

While it waits it runs step hooks, lets a parity probe be sampled and counts the groups that close.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.control.step_hooks import StepHooks, TrainingEnding
from launch.run_records.metrics_log import read_budget_usage
from launch.run_records.step_facts import BudgetUsage
from launch.training.budget import first_limit_reached
from launch.training.state import TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from protocol.events import EventLog
from protocol.journal import BatchLease
from protocol.staleness import StaleTokenPolicy, may_take_step

_LEASE_WAIT_S = 5.0


@dataclass(slots=True, kw_only=True)
class BatchLeaser:
    state: TrainingState
    buffer: Remote[TrajectoryBuffer]
    scheduler: Remote[RolloutScheduler]
    writer: StateWriter
    recorder: StepRecorder
    step_hooks: StepHooks
    events: EventLog
    sampled_tokens: Callable[[], Awaitable[int]]
    """Returns the number of tokens that the engines have sampled so far."""
    release_device: Callable[[], Awaitable[None]]
    """Gives a colocated device back to the engines."""
    sample_parity_probe: Callable[[], Awaitable[None]]
    _started_at: float = 0.0
    _sampled_before: int = 0
    """Tokens that the engines had sampled when training started."""
    _used_before: BudgetUsage = field(default_factory=BudgetUsage)
    """Usage of earlier attempts."""

    def start(self, sampled_tokens: int) -> None:
        """Start to count this attempt's usage."""
        self._started_at, self._sampled_before = time.monotonic(), sampled_tokens
        self._used_before = read_budget_usage(self.state.settings.run_dir)

    async def lease_batch(self) -> BatchLease | None:
        """Lease the oldest full batch of closed groups once there is one; None if a stop condition comes first."""
        while (stop_reason := await self._run_hooks_or_stop()) is None:
            self.writer.raise_if_failed()
            await self.sample_parity_probe()
            await self.recorder.collect_closed_groups(0.0)
            if not (groups := await self._groups_to_lease()):
                self.state.ending, stop_reason = TrainingEnding.DRAINED, "all open groups are trained"
                break
            lease = await self.buffer.call(TrajectoryBuffer.lease_batch, groups)
            if lease is not None and await self._strands_no_episode(lease):
                return lease
            await self._free_journal_space()
            await self.recorder.collect_closed_groups(_LEASE_WAIT_S)
        text = f"training ends after step {self.state.step} of {self.state.settings.steps}: {stop_reason}"
        self.events.emit("alert.raised", name="stop", text=text)
        return None

    async def _run_hooks_or_stop(self) -> str | None:
        """Run the hooks that wait for a point between two steps; return why training is to end, if it is."""
        await self.step_hooks.run_pending()
        await self.release_device()
        return await self._stop_reason()

    async def _stop_reason(self) -> str | None:
        state, stop = self.state, self.state.settings.stop
        if self.step_hooks.ending is TrainingEnding.STOPPED_BY_REQUEST:
            state.ending = TrainingEnding.STOPPED_BY_REQUEST
            return "it was requested"
        tokens = acknowledged = 0
        if stop.after_tokens:
            tokens = self._used_before.tokens + await self.sampled_tokens() - self._sampled_before
        if stop.after_trajectories:
            acknowledged = (await self.buffer.call(TrajectoryBuffer.accounting)).acknowledged
        usage = BudgetUsage(tokens, self._used_before.seconds + time.monotonic() - self._started_at)
        if (limit := first_limit_reached(stop, state.step, acknowledged, usage)) is not None:
            state.ending = TrainingEnding.BUDGET
        return limit

    async def _groups_to_lease(self) -> int:
        """Return the number of groups of the next batch.  The last one of a drained run may be smaller; 0 ends it."""
        full = self.state.batch_fill.groups_to_lease
        if (
            self.step_hooks.ending is not TrainingEnding.DRAINED
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
            await self.release_device()
            await self.writer.wait_saved()

    async def _strands_no_episode(self, lease: BatchLease) -> bool:
        """Under the policy ``wait``: return whether a step on ``lease`` leaves every running episode usable."""
        settings = self.state.settings
        if settings.stale_policy is not StaleTokenPolicy.WAIT:
            return True
        groups = [group.group for group in lease.groups]
        oldest = await self.scheduler.call(RolloutScheduler.binding_step, self.state.step, groups)
        return may_take_step(self.state.step, oldest, settings.max_staleness)
