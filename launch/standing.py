"""Tells the conductor where the run stands, at every change and again every few seconds, so that one whose process was
killed and restarted knows it too."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from actors.admission import Flow, Tuning
from actors.conductor import Conductor, Standing
from actors.remote import Remote, RemoteError
from actors.running_mean import RunningMean

_REPEAT_S = 3.0
_MEMORY_STEPS = 8


@dataclass(slots=True)
class Stand:
    conductor: Remote[Conductor]
    _now: Standing = field(default_factory=Standing)
    _step_s: RunningMean = field(default_factory=lambda: RunningMean(_MEMORY_STEPS))

    async def training(self, published_step: int) -> None:
        """Groups may be opened from here on."""
        await self._tell(replace(self._now, training=True, published_step=published_step))

    async def published(self, step: int) -> None:
        """Every engine serves the weights of ``step``."""
        await self._tell(replace(self._now, published_step=step))

    def stepped(self, busy_s: float) -> None:
        """A step took the learner so long, waiting left out; said with what is told next."""
        self._step_s.add(busy_s)
        self._now = replace(self._now, step_s=self._step_s.value)

    def lost(self, groups: int) -> None:
        """So many groups' worth of trajectories were dropped for their age; said with what is told next."""
        self._now = replace(self._now, lost_groups=groups)

    async def flow(self, flow: Flow) -> None:
        """A person asks for this."""
        await self._tell(replace(self._now, flow=flow))

    async def tuned(self, tuning: Tuning) -> None:
        """A person has changed this."""
        await self._tell(replace(self._now, tuning=tuning))

    def begins(self, flow: Flow) -> None:
        """A person asked for this before the run began; said with what is told first."""
        self._now = replace(self._now, flow=flow)

    async def ended(self) -> None:
        """No group is opened any more, and no ticket of one waits."""
        await self._tell(replace(self._now, training=False))

    async def _tell(self, standing: Standing) -> None:
        self._now = standing
        await self.conductor.call(Conductor.stand, standing)

    async def repeat(self) -> None:
        """Say it again and again until cancelled."""
        while True:
            await asyncio.sleep(_REPEAT_S)
            try:
                await self.conductor.call(Conductor.stand, self._now)
            except RemoteError:
                continue  # it is being restarted: the next time
