"""When an engine may begin to exchange its weights, so that a fleet goes on decoding.

At most ``share`` of the engines exchange at once (a fleet of one stands still as a whole).  Where requests stood still
with the engine that did so last, the others' beginnings are spread: in the time in which each of the fleet exchanges
once it loses ``loss`` of its decoding at most, if all stand still for as long.  An engine that decodes nothing loses
nothing by an exchange, so a fleet that waits for new weights gets them at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from actors.engines.messages import LoadReport


def spread_s(engines: int, stood_s: float, loss: float) -> float:
    """From one beginning to the next, in seconds, when each of ``engines`` stands still for ``stood_s``: the last one's
    end is then ``stood_s ÷ loss`` after the first one's beginning."""
    return stood_s * (1 / loss - 1) / (engines - 1) if engines > 1 else 0.0


class Pace:
    """``share`` and ``loss`` lie above 0 and are 1 at most; a ``loss`` of 1 spreads nothing."""

    def __init__(
        self,
        engines: int,
        share: float,
        loss: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engines, self._loss, self._clock, self._pause = engines, loss, clock, pause
        self._places = asyncio.Semaphore(max(1, math.floor(share * engines)))
        self._begun, self._stood_s = -math.inf, 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """One engine's; whoever exchanged in it tells :meth:`took`."""
        async with self._places:
            while (wait := self._begun + spread_s(self._engines, self._stood_s, self._loss) - self._clock()) > 0:
                await self._pause(wait)
            self._begun = self._clock()
            yield

    def took(self, report: LoadReport) -> None:
        self._stood_s = report.pause_ms / 1000 if report.stood else 0.0
