"""Tells the scheduler where the run stands, at every change and again every few seconds, so that one whose process was
killed and restarted knows it too."""

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
class RunStatePublisher:
    scheduler: Remote[RolloutScheduler]
    _now: SchedulerRunState = field(default_factory=SchedulerRunState)
    _step_s: RunningMean = field(default_factory=lambda: RunningMean(_MEMORY_STEPS))

    async def start_training(self, published_step: int) -> None:
        """Groups may be opened from here on."""
        await self._send(replace(self._now, training=True, published_step=published_step))

    async def set_published_step(self, step: int) -> None:
        """Every engine serves the weights of ``step``."""
        await self._send(replace(self._now, published_step=step))

    def record_step_time(self, busy_s: float) -> None:
        """A step took the learner so long, waiting left out; said with what is told next."""
        self._step_s.add(busy_s)
        self._now = replace(self._now, step_s=self._step_s.value)

    def set_dropped_groups(self, groups: int) -> None:
        """So many groups' worth of trajectories were dropped for their age; said with what is told next."""
        self._now = replace(self._now, lost_groups=groups)

    async def set_flow(self, flow: RolloutFlow) -> None:
        """A person asks for this."""
        await self._send(replace(self._now, flow=flow))

    async def set_tuning(self, tuning: RolloutTuning) -> None:
        """A person has changed this."""
        await self._send(replace(self._now, tuning=tuning))

    def restore_flow(self, flow: RolloutFlow) -> None:
        """A person asked for this before the run began; said with what is told first."""
        self._now = replace(self._now, flow=flow)

    async def end_training(self) -> None:
        """No group is opened any more, and no ticket of one waits."""
        await self._send(replace(self._now, training=False))

    async def _send(self, standing: SchedulerRunState) -> None:
        self._now = standing
        await self.scheduler.call(RolloutScheduler.set_run_state, standing)

    async def repeat_state(self) -> None:
        """Say it again and again until cancelled."""
        while True:
            await asyncio.sleep(_REPEAT_S)
            try:
                await self.scheduler.call(RolloutScheduler.set_run_state, self._now)
            except RemoteError:
                continue  # it is being restarted: the next time
