"""Choice of the engine for each request: the router's rules as a state machine without clock, I/O or engines.

Engines are numbers below ``engines``.  Load is counted in tokens: a request's prompt and the most that it may sample.
An engine's expected load is what it last reported of other routers' requests plus this router's own requests there; a
report older than ``load_ttl_s`` is ignored.

After it failed a request an engine is avoided for ``avoid_s``, or for ``short_pause_s`` if its queue was full.  It is
out while it reports that it does not serve, except for a weight-swap pause shorter than ``short_pause_s``.  It is stale
while its weights are more than ``max_versions_behind`` versions behind another engine's.  Such engines are chosen only
if there is no other, stale ones first; some engine always is.

A session stays on its engine, where its prefix is cached.  It moves when that engine is avoided, out or stale and
another is not, or when its load exceeds the least loaded engine's by ``slack`` times the request.  A session that is
new or moves goes to the least loaded engine, or to one with newer weights if nothing queues there and ``slack`` allows.
Among equals the engine is next whose requests from this router changed longest ago, beginning at ``first``, so that
routers without any report do not all begin with the same engine.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from actors.engines.messages import EngineLoad, EngineState
from protocol.weights import NO_VERSION, version_start_number


class _Rank(IntEnum):
    """Fitness of an engine for a request; lower is better."""

    SERVES = 0
    """It serves weights that are fresh enough."""
    STALE = 1
    """It serves, but its weights are too old."""
    OUT = 2
    """It reports that it does not serve."""
    AVOIDED = 3
    """It failed a request recently."""


class _Candidate(NamedTuple):
    """An engine to choose; candidates compare in the order of preference."""

    rank: _Rank
    tokens: int
    """Its expected load."""
    order: int
    """Counter value at the last change of its requests from this router."""
    engine: int


class _ReportedLoad(NamedTuple):
    """An engine's own report."""

    load: EngineLoad
    until: float
    """Time at which it expires."""


@dataclass(slots=True)
class LoadBalancer:
    """Chooses an engine for each request by session, load and freshness.  Times are seconds of the caller's clock."""

    engines: int
    slack: int = 8
    avoid_s: float = 10.0
    short_pause_s: float = 1.0
    load_ttl_s: float = 5.0
    max_sessions: int = 100_000
    first: int = 0
    max_versions_behind: int = 0
    """Versions within one start of a run; 0 for no limit."""
    moved: int = 0
    """Sessions moved because their engine was overloaded, stale, out or failed."""
    in_flight: list[int] = field(init=False)
    """This router's requests in flight, by engine."""
    _own: list[int] = field(init=False)
    """Tokens of those requests, by engine."""
    _candidates: list[_Candidate] = field(init=False)
    _counter: Iterator[int] = field(init=False)
    _reports: dict[int, _ReportedLoad] = field(default_factory=dict[int, _ReportedLoad])
    _avoided: dict[int, float] = field(default_factory=dict[int, float])
    """Engine → time at which it may be chosen again."""
    _newest: int = NO_VERSION
    """The newest version that any engine reported."""
    _sessions: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def __post_init__(self) -> None:
        if self.engines < 1:
            raise ValueError("a router needs at least one engine")
        self.in_flight, self._own = [0] * self.engines, [0] * self.engines
        orders = [(engine - self.first) % self.engines for engine in range(self.engines)]
        self._candidates = [_Candidate(_Rank.SERVES, 0, order, engine) for engine, order in enumerate(orders)]
        self._counter = itertools.count(self.engines)

    @property
    def sessions(self) -> int:
        """Number of sessions with an engine."""
        return len(self._sessions)

    @property
    def tokens(self) -> list[int]:
        """The expected load, by engine."""
        return [candidate.tokens for candidate in self._candidates]

    def begin_request(self, session: str, tokens: int, now: float) -> int:
        """Choose the engine for a session's next request of at most ``tokens``; it counts until :meth:`end_request`."""
        self._expire(now)
        best, most = min(self._candidates), self.slack * tokens
        known = self._sessions.get(session)
        if known is not None and self._stays(known, best, most):
            engine = known
        else:
            self.moved += known is not None
            engine = self._choose_fresh(best, most)
            self._sessions[session] = engine
        self._sessions.move_to_end(session)
        if len(self._sessions) > self.max_sessions:
            self._sessions.popitem(last=False)
        self._change(engine, 1, tokens)
        return engine

    def end_request(self, engine: int, tokens: int) -> None:
        """A request to ``engine`` is over, whatever its outcome."""
        self._change(engine, -1, -tokens)

    def mark_failed(self, engine: int, now: float, *, busy: bool = False) -> None:
        """Avoid an engine that failed a request, only shortly if it was ``busy``."""
        until = now + (self.short_pause_s if busy else self.avoid_s)
        self._avoided[engine] = max(until, self._avoided.get(engine, until))
        self._rank_engine(engine)

    def update_load(self, engine: int, load: EngineLoad, now: float) -> None:
        """Take an engine's report."""
        self._reports[engine] = _ReportedLoad(load, now + self.load_ttl_s)
        self._rank_engine(engine)
        self._update_newest()

    def count_available(self, now: float) -> int:
        """Count the engines that are neither avoided nor out."""
        self._expire(now)
        return sum(candidate.rank < _Rank.OUT for candidate in self._candidates)

    def has_other_available(self, engine: int, now: float) -> bool:
        """Return whether an engine other than ``engine`` is neither avoided nor out."""
        return self.count_available(now) > (self._candidates[engine].rank < _Rank.OUT)

    def _stays(self, known: int, best: _Candidate, most: int) -> bool:
        candidate = self._candidates[known]
        return candidate.rank is best.rank and candidate.tokens - best.tokens <= most

    def _choose_fresh(self, best: _Candidate, most: int) -> int:
        """Return the best engine among those with the newest weights if one has room, else the best of all."""
        known = self._reports.get(best.engine)
        if known is None or known.load.version == self._newest:
            return best.engine
        with_room = [
            self._candidates[engine]
            for engine, report in self._reports.items()
            if report.load.version == self._newest and not report.load.tokens.queued
        ]
        newer = min(with_room, default=best)
        return newer.engine if newer.rank is best.rank and newer.tokens - best.tokens <= most else best.engine

    def _change(self, engine: int, requests: int, tokens: int) -> None:
        self.in_flight[engine] += requests
        self._own[engine] += tokens
        self._rank_engine(engine, next(self._counter))

    def _rank_engine(self, engine: int, order: int | None = None) -> None:
        """Update the rank of an engine that has changed."""
        report, rank, others = self._reports.get(engine), _Rank.SERVES, 0
        if report is not None:
            others = report.load.tokens.of_others
            rank = self._rank(report.load)
        if engine in self._avoided:
            rank = _Rank.AVOIDED
        order = self._candidates[engine].order if order is None else order
        self._candidates[engine] = _Candidate(rank, others + self._own[engine], order, engine)

    def _rank(self, load: EngineLoad) -> _Rank:
        short_pause = load.state is EngineState.UPDATING and load.paused_s < self.short_pause_s
        if load.state is not EngineState.SERVING and not short_pause:
            return _Rank.OUT
        same_start = version_start_number(self._newest) == version_start_number(load.version)
        behind = self._newest - load.version if same_start else 0
        return _Rank.STALE if 0 < self.max_versions_behind < behind else _Rank.SERVES

    def _update_newest(self) -> None:
        """Update all ranks if the newest version has changed, on which staleness depends."""
        newest = max((report.load.version for report in self._reports.values()), default=NO_VERSION)
        if newest != self._newest:
            self._newest = newest
            for engine in range(self.engines):
                self._rank_engine(engine)

    def _expire(self, now: float) -> None:
        """Drop expired reports and avoidances."""
        for engine in [engine for engine, until in self._avoided.items() if until <= now]:
            del self._avoided[engine]
            self._rank_engine(engine)
        if gone := [engine for engine, report in self._reports.items() if report.until <= now]:
            for engine in gone:
                del self._reports[engine]
                self._rank_engine(engine)
            self._update_newest()
