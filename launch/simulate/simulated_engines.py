"""Simulated engines: requests share one, and each is the slower the more there are.

A request goes at the speed of the load that it found: its end is known when it begins, and one event is all it costs.
Work is counted in seconds of an engine at its reference load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from launch.simulate.virtual_clock import VirtualClock


class SampledSpan(NamedTuple):
    version: int
    tokens: int


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """One turn's sampling."""

    owner: RequestOwner
    tokens: int
    work_s: float
    """At the reference load; from its beginning on, at the load that it found."""
    spans: list[SampledSpan] = field(default_factory=list[SampledSpan])
    """Which weights sampled how many, so far."""
    live: bool = True
    begun_s: float = 0.0
    late_s: float = 0.0
    """Pauses while it ran."""

    @property
    def sampled(self) -> int:
        """Tokens, as far as its spans say."""
        return sum(span.tokens for span in self.spans)


class RequestOwner(Protocol):
    """Who is told what became of a request."""

    def request_sampled(self, request: SimulatedRequest) -> None: ...
    def request_refused(self, request: SimulatedRequest) -> None: ...


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


def total_idle_s(engines: Sequence[SimulatedEngine]) -> float:
    """Seconds without a request, of all of them, since the beginning."""
    return sum(engine.idle_s() for engine in engines)


class SimulatedEngine:
    """Fails what runs on it when it dies; stands still while it loads weights."""

    __slots__ = ("_clock", "_free_since", "_idle_s", "_running", "_speeds", "alive", "version")

    def __init__(self, clock: VirtualClock, speeds: list[float]) -> None:
        self._clock, self._speeds = clock, speeds
        self.version, self.alive = 0, True
        self._running: dict[SimulatedRequest, None] = {}
        self._idle_s = self._free_since = 0.0

    @property
    def requests(self) -> int:
        return len(self._running)

    def idle_s(self) -> float:
        """Seconds without a request."""
        return self._idle_s + (0.0 if self._running else self._clock.now - self._free_since)

    def submit(self, request: SimulatedRequest) -> None:
        if not self.alive:
            request.live = False
            request.owner.request_refused(request)
            return
        running, now = self._running, self._clock.now
        if not running:
            self._idle_s += now - self._free_since
        running[request] = None
        request.begun_s = now
        speed = self._speeds[len(running)]
        request.work_s /= speed
        self._clock.schedule(request.work_s, self._due, request)

    def cancel(self, request: SimulatedRequest) -> None:
        """Its caller is gone; its spans say what was sampled in vain."""
        if request.live:
            self._note_now(request)
            self._leave(request)

    def die(self) -> None:
        """Every request is refused, its spans saying what was sampled in vain."""
        self.alive = False
        running = list(self._running)
        for request in running:
            self._note_now(request)
            self._leave(request)
        for request in running:
            request.owner.request_refused(request)

    def revive(self, version: int) -> None:
        self.alive, self.version = True, version

    def load_weights(self, version: int, pause_s: float) -> None:
        """Exchange the weights in place, standing still for ``pause_s``."""
        if self.alive:
            for request in self._running:
                self._note_now(request)
                request.late_s += pause_s
            self.version = version

    def _leave(self, request: SimulatedRequest) -> None:
        request.live = False
        del self._running[request]
        if not self._running:
            self._free_since = self._clock.now

    def _note_now(self, request: SimulatedRequest) -> None:
        """So far the present version has sampled."""
        share = min(1.0, (self._clock.now - request.begun_s) / request.work_s) if request.work_s else 1.0
        self._note(request, int(request.tokens * share))

    def _note(self, request: SimulatedRequest, done: int) -> None:
        """``done`` tokens of ``request`` are sampled, the latest of them by the present version."""
        new = done - request.sampled
        if new > 0:
            request.spans.append(SampledSpan(self.version, new))

    def _due(self, request: SimulatedRequest) -> None:
        if not request.live:
            return
        if request.late_s:
            late_s, request.late_s = request.late_s, 0.0
            self._clock.schedule(late_s, self._due, request)
            return
        self._leave(request)
        if request.spans:
            self._note(request, request.tokens)
        else:
            request.spans.append(SampledSpan(self.version, request.tokens))
        request.owner.request_sampled(request)
