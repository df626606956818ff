"""Simulated engines, on which requests slow each other down.

A request runs at the speed of the load that it found at its start, so that its end is known then and costs one event.
Work is measured in seconds at the reference load.
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
    """The sampling of one turn."""

    owner: RequestOwner
    tokens: int
    work_s: float
    """Seconds at the reference load; once started, seconds at the load that it found."""
    spans: list[SampledSpan] = field(default_factory=list[SampledSpan])
    """Tokens sampled so far by each weight version."""
    live: bool = True
    begun_s: float = 0.0
    late_s: float = 0.0
    """Seconds of pauses while it ran."""

    @property
    def sampled(self) -> int:
        """Number of tokens in the spans."""
        return sum(span.tokens for span in self.spans)


class RequestOwner(Protocol):
    """Receives the outcome of a request."""

    def request_sampled(self, request: SimulatedRequest) -> None: ...
    def request_refused(self, request: SimulatedRequest) -> None: ...


def speed_by_load(curve: Sequence[tuple[int, float]], reference: float, most: int = 4096) -> list[float]:
    """Return the relative speed of each request by the number of requests; 1 at ``reference`` requests.

    ``curve`` has measured points of (requests, total tokens per second), linear in between and constant beyond."""
    nominal = _request_speed(curve, reference)
    return [0.0, *(_request_speed(curve, count) / nominal for count in range(1, most + 1))]


def _request_speed(curve: Sequence[tuple[int, float]], count: float) -> float:
    """Return the tokens per second of one of ``count`` requests."""
    below = max((point for point in curve if point[0] <= count), default=curve[0])
    above = min((point for point in curve if point[0] >= count), default=curve[-1])
    share = (count - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
    return (below[1] + share * (above[1] - below[1])) / max(count, 1)


def total_idle_s(engines: Sequence[SimulatedEngine]) -> float:
    """Return the seconds without a request, summed over the engines."""
    return sum(engine.idle_s() for engine in engines)


class SimulatedEngine:
    """An engine that pauses while it loads weights, and refuses its requests when it dies."""

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
        """Return the seconds without a request."""
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
        """Remove a request whose episode is gone; its spans hold the tokens that were lost."""
        if request.live:
            self._note_now(request)
            self._leave(request)

    def die(self) -> None:
        """Refuse every request; its spans hold the tokens that were lost."""
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
        """Exchange the weights in place, run_state still for ``pause_s``."""
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
        """Credit the tokens sampled until now to the current version."""
        share = min(1.0, (self._clock.now - request.begun_s) / request.work_s) if request.work_s else 1.0
        self._note(request, int(request.tokens * share))

    def _note(self, request: SimulatedRequest, done: int) -> None:
        """Credit tokens to the current version, up to ``done`` tokens in total."""
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
