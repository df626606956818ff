"""Limits concurrent sandbox starts to a number that is learned from how long starts take.

A daemon that starts one container in 150 ms does not start eight in the same time: beyond what its machine can do in
parallel, more starts at once only make each slower. So the limit climbs while that gives more starts per second, and
falls while that costs none: it stays near the smallest number that keeps the machine busy. When neither direction is
worthwhile, it rests and tries again now and then.

:class:`StartConcurrencyLimit` is the rule: latencies in, a number out, no clock. :class:`StartLimiter` applies it:
first come, first served, with requests before starts that only fill the warm pool.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

GAIN = 1.08
"""Factor in starts per second that makes a step up worthwhile, or a step down too far."""
_ROUND = 4
"""Minimum number of starts whose mean is compared with the round before."""
_REST = 24
"""Rounds at the limit between two trials of its neighbours, over which the cost of a slower trial is spread."""
_SMOOTHING = 0.3
_ASSUMED_S = 10.0
"""Seconds assumed for a start before one has been measured."""


class StartConcurrencyLimit:
    """State of the rule: at most ``limit`` starts may be in progress. Report each start that ended."""

    def __init__(self, initial: int, maximum: int, minimum: int = 1) -> None:
        if not 1 <= minimum <= initial <= maximum:
            raise ValueError(f"1 <= minimum <= initial <= maximum, not {minimum}, {initial} and {maximum}")
        self.limit, self._maximum, self._minimum = initial, maximum, minimum
        self.start_s = 0.0
        """Smoothed duration of one start in seconds; 0 before the first."""
        self._best: int = initial
        """The limit that is kept until another is better."""
        self._best_rate = 0.0
        """Its last measured starts per second."""
        self._direction = 1
        """Direction of the next trial: up (1) or down (-1)."""
        self._refused = self._rest = 0
        """Number of consecutive directions that were not worthwhile; ``_rest`` counts rounds until the next trial."""
        self._round: list[float] = []

    def record_start(self, seconds: float, at_once: int) -> None:
        """Record the duration of a start, without its wait, and the number of starts in progress."""
        seconds = max(seconds, 1e-6)
        self.start_s = seconds if not self.start_s else self.start_s + _SMOOTHING * (seconds - self.start_s)
        if at_once < self.limit:
            return  # the limit was not the bottleneck
        self._round.append(seconds)
        if len(self._round) >= max(_ROUND, self.limit):
            rate = self.limit * len(self._round) / sum(self._round)
            self._round.clear()
            self._measured(rate)

    def _measured(self, rate: float) -> None:
        if self.limit == self._best:
            self._best_rate = rate
            self._rest = max(0, self._rest - 1)
            if not self._rest:
                self._try_next()
        elif self._is_worth_it(rate):
            self._best, self._best_rate, self._refused = self.limit, rate, 0
            self._try_next()
        else:
            self.limit = self._best
            self._reverse()

    def _is_worth_it(self, rate: float) -> bool:
        return rate > GAIN * self._best_rate if self.limit > self._best else GAIN * rate >= self._best_rate

    def _try_next(self) -> None:
        """Try the next limit in the current direction; at the end of the range, reverse the direction."""
        self.limit = min(max(self._best + self._direction * max(1, self._best // 4), self._minimum), self._maximum)
        if self.limit == self._best:
            self._reverse()

    def _reverse(self) -> None:
        self._direction, self._refused = -self._direction, self._refused + 1
        if self._refused == 2:
            self._refused, self._rest = 0, _REST

    def record_timeout(self) -> None:
        """Record a start that timed out: halve the limit."""
        self.limit = self._best = max(self._minimum, self.limit // 2)
        self._direction, self._refused, self._rest = 1, 0, 0
        self._round.clear()

    def estimate_wait_s(self, ahead: int) -> float:
        """Return the estimated seconds until a new request behind ``ahead`` others starts."""
        return ahead * (self.start_s or _ASSUMED_S) / self.limit


class StartLimiter:
    """``async with limiter.start_slot(): start()`` allows at most ``limit.limit`` starts at once."""

    def __init__(self, limit: StartConcurrencyLimit, now: Callable[[], float] = time.perf_counter) -> None:
        self.concurrency_limit = limit
        self.under_way = 0
        self._now = now
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """Number of urgent starts that wait."""
        return sum(not each.done() for each in self._urgent)

    @asynccontextmanager
    async def start_slot(self, *, urgent: bool = True) -> AsyncGenerator[None]:
        """Wait for a slot, and measure the duration of the block."""
        await self._enter(self._urgent if urgent else self._idle)
        began, at_once = self._now(), self.under_way
        try:
            yield
            self.concurrency_limit.record_start(self._now() - began, max(at_once, self.under_way))
        except TimeoutError:
            self.concurrency_limit.record_timeout()
            raise
        finally:
            self._leave()

    async def _enter(self, queue: deque[asyncio.Future[None]]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self._admit()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # admitted and cancelled at the same time
                self._leave()
            raise

    def _leave(self) -> None:
        self.under_way -= 1
        self._admit()

    def _admit(self) -> None:
        while self.under_way < self.concurrency_limit.limit and (queue := self._urgent or self._idle):
            waiter = queue.popleft()
            if not waiter.done():  # else its waiter has given up
                self.under_way += 1
                waiter.set_result(None)
