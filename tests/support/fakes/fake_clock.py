"""A clock that a test moves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass
class FakeClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        """Move on by ``seconds`` and let other tasks run."""
        self.now += seconds
        await asyncio.sleep(0)
