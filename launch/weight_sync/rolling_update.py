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

from actors.engines.messages import WeightLoadReport


def stagger_interval_s(engines: int, stood_s: float, loss: float) -> float:
    """From one beginning to the next, in seconds, when each of ``engines`` stands still for ``stood_s``: the last one's
    end is then ``stood_s ÷ loss`` after the first one's beginning."""
    return stood_s * (1 / loss - 1) / (engines - 1) if engines > 1 else 0.0


async def wait_or_timeout(event: asyncio.Event, seconds: float) -> None:
    """Return when it is set, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class RollingUpdate:
    """``share`` and ``loss`` lie above 0 and are 1 at most; a ``loss`` of 1 spreads nothing."""

    def __init__(
        self,
        engines: int,
        max_updating_share: float,
        max_decode_loss: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[asyncio.Event, float], Awaitable[None]] = wait_or_timeout,
    ) -> None:
        self._engines, self._loss, self._clock, self._pause = engines, max_decode_loss, clock, pause
        self._places = asyncio.Semaphore(max(1, math.floor(max_updating_share * engines)))
        self._begun, self._pause_s = -math.inf, 0.0
        self._waiting, self._unstaggered = 0, asyncio.Event()

    @contextmanager
    def unstaggered(self) -> Generator[None]:
        """Nothing is spread meanwhile."""
        self._waiting += 1
        self._unstaggered.set()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._unstaggered.clear()

    @asynccontextmanager
    async def update_slot(self) -> AsyncGenerator[Callable[[WeightLoadReport], None]]:
        """One engine's, which tells what it gives that it exchanged.  A turn without that puts off nobody's."""
        async with self._places:
            while not self._waiting and (wait := self._next_start - self._clock()) > 0:
                await self._pause(self._unstaggered, wait)
            before, begun, exchanged = self._begun, self._clock(), False
            self._begun = begun

            def took(report: WeightLoadReport) -> None:
                nonlocal exchanged
                exchanged = True
                self._pause_s = report.pause_ms / 1000 if report.paused_requests else 0.0

            try:
                yield took
            finally:
                if not exchanged and self._begun == begun:
                    self._begun = before

    @property
    def _next_start(self) -> float:
        return self._begun + stagger_interval_s(self._engines, self._pause_s, self._loss)
