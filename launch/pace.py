"""When an engine may begin to exchange its weights, so that a fleet goes on decoding.

At most ``share`` of the engines exchange at once (a fleet of one stands still as a whole).  Where requests stood still
with the engine that did so last, the others' beginnings are spread: in the time in which each of the fleet exchanges
once it loses ``loss`` of its decoding at most, if all stand still for as long.  An engine that decodes nothing loses
nothing by an exchange, so a fleet that waits for new weights gets them at once; so does whoever says that he waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress

from actors.engines.messages import LoadReport


def spread_s(engines: int, stood_s: float, loss: float) -> float:
    """From one beginning to the next, in seconds, when each of ``engines`` stands still for ``stood_s``: the last one's
    end is then ``stood_s ÷ loss`` after the first one's beginning."""
    return stood_s * (1 / loss - 1) / (engines - 1) if engines > 1 else 0.0


async def until(event: asyncio.Event, seconds: float) -> None:
    """Return when it is set, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Pace:
    """``share`` and ``loss`` lie above 0 and are 1 at most; a ``loss`` of 1 spreads nothing."""

    def __init__(
        self,
        engines: int,
        share: float,
        loss: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[asyncio.Event, float], Awaitable[None]] = until,
    ) -> None:
        self._engines, self._loss, self._clock, self._pause = engines, loss, clock, pause
        self._places = asyncio.Semaphore(max(1, math.floor(share * engines)))
        self._begun, self._stood_s = -math.inf, 0.0
        self._waiting, self._hurry = 0, asyncio.Event()

    @contextmanager
    def hurried(self) -> Generator[None]:
        """Nothing is spread meanwhile."""
        self._waiting += 1
        self._hurry.set()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._hurry.clear()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Callable[[LoadReport], None]]:
        """One engine's, which tells what it gives that it exchanged.  A turn without that puts off nobody's."""
        async with self._places:
            while not self._waiting and (wait := self._due - self._clock()) > 0:
                await self._pause(self._hurry, wait)
            before, begun, exchanged = self._begun, self._clock(), False
            self._begun = begun

            def took(report: LoadReport) -> None:
                nonlocal exchanged
                exchanged = True
                self._stood_s = report.pause_ms / 1000 if report.stood else 0.0

            try:
                yield took
            finally:
                if not exchanged and self._begun == begun:
                    self._begun = before

    @property
    def _due(self) -> float:
        return self._begun + spread_s(self._engines, self._stood_s, self._loss)
