"""Sends the state of the run to the scheduler, at every change and every few seconds, so that a restarted scheduler
gets it too."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.admission import RolloutFlow, RolloutTuning
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.running_mean import RunningMean
from actors.scheduler.settings import SchedulerRunState

_REPEAT_S = 3.0
_MEMORY_STEPS = 8


@dataclass(slots=True)
class SchedulerStateSender:
    scheduler: Remote[RolloutScheduler]
    _now: SchedulerRunState = field(default_factory=SchedulerRunState)
    _step_s: RunningMean = field(default_factory=lambda: RunningMean(_MEMORY_STEPS))

    async def start_training(self, served_step: int) -> None:
        """Let the scheduler open groups from now on."""
        await self._send(replace(self._now, training=True, served_step=served_step))

    async def set_served_step(self, step: int) -> None:
        """Report that every engine serves the weights of ``step``."""
        await self._send(replace(self._now, served_step=step))

    def record_step_time(self, busy_s: float) -> None:
        """Record the learner's time for a step, without waiting; sent with the next change."""
        self._step_s.add(busy_s)
        self._now = replace(self._now, step_s=self._step_s.value)

    def set_dropped_groups(self, groups: int) -> None:
        """Set the number of groups that stale dropped trajectories amount to; sent with the next change."""
        self._now = replace(self._now, dropped_groups=groups)

    async def set_flow(self, flow: RolloutFlow) -> None:
        """Send the flow that a person requested."""
        await self._send(replace(self._now, flow=flow))

    async def set_tuning(self, tuning: RolloutTuning) -> None:
        """Send the tuning that a person changed."""
        await self._send(replace(self._now, tuning=tuning))

    def restore_flow(self, flow: RolloutFlow) -> None:
        """Set the flow that a person requested in an earlier start of the run; sent with the first change."""
        self._now = replace(self._now, flow=flow)

    async def end_training(self) -> None:
        """Let the scheduler open no more groups and drop waiting requests."""
        await self._send(replace(self._now, training=False))

    async def _send(self, state: SchedulerRunState) -> None:
        self._now = state
        await self.scheduler.call(RolloutScheduler.set_run_state, state)

    async def repeat_state(self) -> None:
        """Send the state every few seconds until cancelled."""
        while True:
            await asyncio.sleep(_REPEAT_S)
            try:
                await self.scheduler.call(RolloutScheduler.set_run_state, self._now)
            except RemoteError:
                continue  # it is being restarted: the next time
