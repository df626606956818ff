"""Simulated engines: requests share one, and each is the slower the more there are.

All requests of an engine advance at the same rate, so one number, the work that each of them has been given, says when
the next one ends: an arrival costs a heap operation, whatever the load.  Work is counted in seconds of an engine at its
reference load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from launch.simulate.clock import Clock


_EXACT = 1e-9
"""Seconds of work that are rounding."""


class Span(NamedTuple):
    version: int
    tokens: int


@dataclass(slots=True, eq=False)
class Request:
    """One turn's sampling."""

    owner: Owner
    tokens: int
    work_s: float
    spans: list[Span] = field(default_factory=list[Span])
    """Which weights sampled how many, so far."""
    live: bool = True
    begun: float = 0.0
    """The engine's count of given work when it came."""


class Owner(Protocol):
    """Who is told what became of a request."""

    def sampled(self, request: Request) -> None: ...
    def refused(self, request: Request) -> None: ...


def speed_by_load(curve: Sequence[tuple[int, float]], reference: float, most: int = 4096) -> list[float]:
    """Work that each of n requests is given a second, by n; 1 at ``reference`` requests.  ``curve`` has measured
    (requests, tokens a second of all together), straight lines between, and the last total beyond."""
    nominal = _each(curve, reference)
    return [0.0, *(_each(curve, count) / nominal for count in range(1, most + 1))]


def _each(curve: Sequence[tuple[int, float]], count: float) -> float:
    """Tokens a second of one among ``count`` requests."""
    below = max((point for point in curve if point[0] <= count), default=curve[0])
    above = min((point for point in curve if point[0] >= count), default=curve[-1])
    share = (count - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
    return (below[1] + share * (above[1] - below[1])) / max(count, 1)


class Engine:
    """Fails what runs on it when it dies; stands still while it loads weights."""

    __slots__ = (
        "_at",
        "_clock",
        "_ends",
        "_expected_s",
        "_given",
        "_paused",
        "_seq",
        "_speeds",
        "_stamp",
        "alive",
        "busy_s",
        "requests",
        "version",
    )

    def __init__(self, clock: Clock, speeds: list[float]) -> None:
        self._clock, self._speeds = clock, speeds
        self.version, self.alive, self.requests = 0, True, 0
        self.busy_s = 0.0
        """With a request running, or standing still for a load."""
        self._paused = False
        self._given, self._at = 0.0, 0.0
        self._ends: list[tuple[float, int, Request]] = []
        """(count of given work at its end, order of coming, request)"""
        self._seq = self._stamp = 0
        self._expected_s = math.inf
        """When the event that is under way is due: not after the next end, perhaps before it."""

    def submit(self, request: Request) -> None:
        if not self.alive:
            request.live = False
            request.owner.refused(request)
            return
        self._advance()
        request.begun = self._given
        self._seq += 1
        heappush(self._ends, (self._given + request.work_s, self._seq, request))
        self.requests += 1
        self._expect()

    def cancel(self, request: Request) -> None:
        """Its caller is gone."""
        if request.live:
            self._advance()
            request.live = False
            self.requests -= 1
            self._expect()

    def die(self) -> None:
        running = [request for _, _, request in sorted(self._ends, key=lambda end: end[1]) if request.live]
        self._advance()
        self._note_all()
        self.alive, self.requests = False, 0
        self._ends.clear()
        self._forget_event()
        for request in running:
            request.live = False
        for request in running:
            request.owner.refused(request)

    def revive(self, version: int) -> None:
        self._advance()
        self.alive, self.version, self._paused = True, version, False

    def load(self, version: int, pause_s: float) -> None:
        """Exchange the weights in place, standing still for ``pause_s``."""
        if not self.alive:
            return
        self._advance()
        self._note_all()
        self.version, self._paused = version, True
        self._forget_event()
        self._clock.after(pause_s, self._resume)

    def _resume(self, _: None) -> None:
        self._advance()
        self._paused = False
        self._expect()

    def _note_all(self) -> None:
        for _, _, request in self._ends:
            if request.live:
                self._note(request, int(request.tokens * (self._given - request.begun) / request.work_s))

    def _note(self, request: Request, done: int) -> None:
        """``done`` tokens of ``request`` are sampled, the latest of them by the present version."""
        new = min(done, request.tokens) - sum(span.tokens for span in request.spans)
        if new > 0:
            request.spans.append(Span(self.version, new))

    def _advance(self) -> None:
        now, requests = self._clock.now, self.requests
        if requests or self._paused:
            passed = now - self._at
            self.busy_s += passed
            if not self._paused:
                self._given += passed * self._speeds[requests]
        self._at = now

    def _expect(self) -> None:
        """See that an event comes no later than the next end; one that comes before it asks again."""
        ends = self._ends
        while ends and not ends[0][2].live:
            heappop(ends)
        if not ends or self._paused:
            return
        seconds = (ends[0][0] - self._given) / self._speeds[self.requests]
        if self._clock.now + seconds < self._expected_s:
            self._stamp += 1
            self._expected_s = self._clock.now + max(0.0, seconds)
            self._clock.after(max(0.0, seconds), self._due, self._stamp)

    def _forget_event(self) -> None:
        self._stamp += 1
        self._expected_s = math.inf

    def _due(self, stamp: int) -> None:
        if stamp != self._stamp:
            return
        self._advance()
        self._expected_s = math.inf
        ends = self._ends
        if ends and (not ends[0][2].live or ends[0][0] > self._given + _EXACT):
            self._expect()
            return
        if not ends:
            return
        request = heappop(ends)[2]
        self._given = max(self._given, request.begun + request.work_s)
        self.requests -= 1
        request.live = False
        if request.spans:
            self._note(request, request.tokens)
        else:
            request.spans.append(Span(self.version, request.tokens))
        self._expect()
        request.owner.sampled(request)
