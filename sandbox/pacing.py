"""How many sandboxes may start at once, learned from how long starts take.

A daemon that starts one container in 150 ms does not start eight in the same time: beyond what its machine can do in
parallel, more at once only makes each slower.  The limit grows by one for every limit's worth of starts that stay
within :data:`TOLERANCE` times the time of an unhurried start, and shrinks in proportion as soon as they do not
(additive increase, multiplicative decrease).  What counts as unhurried is the fastest smoothed start so far; it is let
rise slowly, so that a machine that has become slower for good is believed after a while.

:class:`Pace` is the rule: latencies in, a number out, no clock.  :class:`StartGate` holds starts to it: first come,
first served, and those that somebody waits for before those that only fill the warm pool.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

TOLERANCE = 2.5
"""Starts may take this many times an unhurried one: at about twice, both cores of a machine are busy."""
_SMOOTHING = 0.3
"""Weight of the newest start."""
_FORGET = 1.02
"""The unhurried start's rise with every start."""
_BACK_OFF = 0.7
_FAILED_S = 10.0
"""Assumed duration of a start when every one so far has failed."""


class PaceStatistics(NamedTuple):
    limit: int
    start_s: float
    """Smoothed; 0 before the first start."""
    unhurried_s: float


class Pace:
    """The rule's state.  ``limit`` starts may be under way; tell it of each that ended."""

    def __init__(self, first: int, most: int) -> None:
        if not 1 <= first <= most:
            raise ValueError(f"1 <= first <= most, not {first} and {most}")
        self._limit, self._most = float(first), most
        self._start_s = self._unhurried_s = 0.0
        self._since_cut = first

    @property
    def limit(self) -> int:
        return int(self._limit)

    def started(self, seconds: float) -> None:
        """A start took so long, from its request to the shell's first answer, waiting for its turn not counted."""
        seconds = max(seconds, 1e-6)
        first = not self._unhurried_s
        self._start_s = seconds if first else self._start_s + _SMOOTHING * (seconds - self._start_s)
        self._unhurried_s = seconds if first else min(self._unhurried_s * _FORGET, self._start_s)
        if self._start_s > TOLERANCE * self._unhurried_s:
            self._cut()
        else:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))
            self._since_cut += 1

    def failed(self) -> None:
        """A start ran out of its time or was refused by the daemon."""
        self._cut()

    def _cut(self) -> None:
        """Once for each round of starts: those under way when it was made say nothing of the new limit."""
        self._since_cut += 1
        if self._since_cut > self._limit:
            self._limit = max(1.0, self._limit * _BACK_OFF)
            self._since_cut = 0

    def wait_s(self, ahead: int) -> float:
        """How long one that comes now waits for its turn behind ``ahead`` others."""
        return ahead * (self._start_s or _FAILED_S) / self._limit

    def statistics(self) -> PaceStatistics:
        return PaceStatistics(self.limit, self._start_s, self._unhurried_s)


class StartGate:
    """``async with gate.turn(): start()``: at most ``pace.limit`` at once."""

    def __init__(self, pace: Pace, now: Callable[[], float] = time.perf_counter) -> None:
        self.pace = pace
        self.under_way = 0
        self._now = now
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """Waiting for their turn, with somebody waiting for them."""
        return sum(not each.done() for each in self._urgent)

    @asynccontextmanager
    async def turn(self, *, urgent: bool = True) -> AsyncGenerator[None]:
        """Wait for a turn; measure what is done in it."""
        await self._enter(self._urgent if urgent else self._idle)
        began = self._now()
        try:
            yield
            self.pace.started(self._now() - began)
        except TimeoutError:
            self.pace.failed()
            raise
        finally:
            self._leave()

    async def _enter(self, queue: deque[asyncio.Future[None]]) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # admitted and cancelled at once
                self._leave()
            raise

    def _leave(self) -> None:
        self.under_way -= 1
        self._admit()

    def _admit(self) -> None:
        while self.under_way < self.pace.limit and (queue := self._urgent or self._idle):
            turn = queue.popleft()
            if not turn.done():  # else its waiter has given up
                self.under_way += 1
                turn.set_result(None)
