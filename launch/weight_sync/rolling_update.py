"""Decides when an engine may start to swap its weights, so that the engines together go on decoding.

At most ``max_updating_share`` of the engines swap at once (a single engine always may).  If requests were paused at the
last swap, the starts of the others are staggered: while each engine swaps once, the engines together lose at most
``max_update_overhead`` of their decoding, if all pause for as long.  An engine without requests loses nothing, so
engines that wait for new weights get them at once; :meth:`RollingUpdate.unstaggered` does the same for a caller who
waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress

from actors.engines.messages import WeightLoadReport


def stagger_interval_s(engines: int, pause_s: float, overhead: float) -> float:
    """Return the seconds between two starts if each of ``engines`` pauses for ``pause_s``: the last one then ends
    ``pause_s ÷ overhead`` after the first one's start."""
    return pause_s * (1 / overhead - 1) / (engines - 1) if engines > 1 else 0.0


async def wait_or_timeout(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class RollingUpdate:
    """Both limits are above 0 and at most 1; an overhead of 1 staggers nothing."""

    def __init__(
        self,
        engines: int,
        max_updating_share: float,
        max_update_overhead: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[asyncio.Event, float], Awaitable[None]] = wait_or_timeout,
    ) -> None:
        self._engines, self._overhead, self._clock, self._pause = engines, max_update_overhead, clock, pause
        self._slots = asyncio.Semaphore(max(1, math.floor(max_updating_share * engines)))
        self._last_start, self._pause_s = -math.inf, 0.0
        self._waiting, self._unstaggered = 0, asyncio.Event()

    @contextmanager
    def unstaggered(self) -> Generator[None]:
        """Stagger nothing while the context is open."""
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
        """Wait for a slot and hold it while one engine swaps; the engine calls the yielded function with its report.  A
        slot without a swap delays no other."""
        async with self._slots:
            while not self._waiting and (wait := self._next_start - self._clock()) > 0:
                await self._pause(self._unstaggered, wait)
            before, start, swapped = self._last_start, self._clock(), False
            self._last_start = start

            def record_pause(report: WeightLoadReport) -> None:
                nonlocal swapped
                swapped = True
                self._pause_s = report.pause_ms / 1000 if report.paused_requests else 0.0

            try:
                yield record_pause
            finally:
                if not swapped and self._last_start == start:
                    self._last_start = before

    @property
    def _next_start(self) -> float:
        return self._last_start + stagger_interval_s(self._engines, self._pause_s, self._overhead)
