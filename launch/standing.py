"""Tells the conductor where the run stands, at every change and again every few seconds, so that one whose process was
killed and restarted knows it too."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from actors.conductor import Conductor, Standing
from actors.remote import Remote, RemoteError

_REPEAT_S = 3.0


@dataclass(slots=True)
class Stand:
    conductor: Remote[Conductor]
    _now: Standing = field(default_factory=Standing)

    async def training(self, published_step: int) -> None:
        """Groups may be opened from here on."""
        await self._tell(Standing(training=True, published_step=published_step))

    async def published(self, step: int) -> None:
        """Every engine serves the weights of ``step``."""
        await self._tell(Standing(self._now.training, step))

    async def ended(self) -> None:
        """No group is opened any more, and no ticket of one waits."""
        await self._tell(Standing(training=False, published_step=self._now.published_step))

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
