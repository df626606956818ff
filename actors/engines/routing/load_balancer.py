"""Which engine a request goes to: the router's rules as a state machine without clock, I/O or engine.

Engines are numbers below ``engines``.  Load is counted in tokens: a request's prompt and the most that it may sample.
What an engine is expected to have is what it said last of other routers' requests and what this router has there now;
an engine that has said nothing for ``believe_s`` is known by this router's requests alone.

An engine is avoided for ``avoid_s`` after it failed a request, for ``blink_s`` if its queue was full, out while it says
that it serves nobody, a pause for new weights of less than ``blink_s`` excepted, and stale while its weights are more
than ``lag`` versions behind those that another serves.  Such are chosen only where there is no other, a stale one
first: some engine always is.

A session stays on its engine, where its prefix is cached; it moves when that one is avoided, out or stale and another
is not, or has more load than the least loaded one by ``slack`` times the request.  A session that is new, or moves,
goes to the least loaded engine, or to one that serves newer weights, if nobody waits there and ``slack`` allows.  Among
equals the one whose own requests changed longest ago is next, beginning at ``first``: routers that have heard nothing
yet must not all begin with the same engine.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from actors.engines.messages import EngineLoad, EngineState
from protocol.weights import NO_VERSION, version_attempt


class _Rank(IntEnum):
    SERVES = 0
    STALE = 1
    """It serves, but what it samples would be too old."""
    OUT = 2
    """It says so itself."""
    AVOIDED = 3
    """It failed a request."""


class _Candidate(NamedTuple):
    """Engines are chosen in this order."""

    rank: _Rank
    tokens: int
    """Expected there."""
    turn: int
    """When its requests of this router changed last."""
    engine: int


class _ReportedLoad(NamedTuple):
    load: EngineLoad
    until: float
    """When it is too old to be believed."""


@dataclass(slots=True)
class LoadBalancer:
    engines: int
    slack: int = 8
    avoid_s: float = 10.0
    short_pause_s: float = 1.0
    load_ttl_s: float = 5.0
    max_sessions: int = 100_000
    first: int = 0
    max_version_lag: int = 0
    """Versions, of one start of a run; 0 for any number."""
    moved: int = 0
    """Sessions sent elsewhere because their engine was overloaded, stale, out or failed."""
    in_flight: list[int] = field(init=False)
    """Requests under way, by engine."""
    _own: list[int] = field(init=False)
    """Their tokens."""
    _standings: list[_Candidate] = field(init=False)
    _turns: Iterator[int] = field(init=False)
    _heard: dict[int, _ReportedLoad] = field(default_factory=dict[int, _ReportedLoad])
    _avoided: dict[int, float] = field(default_factory=dict[int, float])
    """Engine → until when."""
    _newest: int = NO_VERSION
    """Of the weights that any engine serves."""
    _sessions: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def __post_init__(self) -> None:
        if self.engines < 1:
            raise ValueError("a router needs at least one engine")
        self.in_flight, self._own = [0] * self.engines, [0] * self.engines
        turns = [(engine - self.first) % self.engines for engine in range(self.engines)]
        self._standings = [_Candidate(_Rank.SERVES, 0, turn, engine) for engine, turn in enumerate(turns)]
        self._turns = itertools.count(self.engines)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def tokens(self) -> list[int]:
        """Load that is expected, by engine."""
        return [standing.tokens for standing in self._standings]

    def begin_request(self, session: str, tokens: int, now: float) -> int:
        """The engine for ``session``'s next request, of so many tokens at most; it is under way until :meth:`end`."""
        self._forget(now)
        best, most = min(self._standings), self.slack * tokens
        known = self._sessions.get(session)
        if known is not None and self._stays(known, best, most):
            engine = known
        else:
            self.moved += known is not None
            engine = self._freshest(best, most)
            self._sessions[session] = engine
        self._sessions.move_to_end(session)
        if len(self._sessions) > self.max_sessions:
            self._sessions.popitem(last=False)
        self._change(engine, 1, tokens)
        return engine

    def end_request(self, engine: int, tokens: int) -> None:
        """A request to ``engine`` is over, however."""
        self._change(engine, -1, -tokens)

    def mark_failed(self, engine: int, now: float, *, busy: bool = False) -> None:
        """``engine`` failed a request: it is avoided for a while, a short one if it was only ``busy``."""
        until = now + (self.short_pause_s if busy else self.avoid_s)
        self._avoided[engine] = max(until, self._avoided.get(engine, until))
        self._stand(engine)

    def update_load(self, engine: int, load: EngineLoad, now: float) -> None:
        """What ``engine`` says of itself."""
        self._heard[engine] = _ReportedLoad(load, now + self.load_ttl_s)
        self._stand(engine)
        self._compare()

    def count_available(self, now: float) -> int:
        """How many engines are neither avoided nor out."""
        self._forget(now)
        return sum(standing.rank < _Rank.OUT for standing in self._standings)

    def has_other_available(self, engine: int, now: float) -> bool:
        """Whether an engine other than ``engine`` is neither avoided nor out."""
        return self.count_available(now) > (self._standings[engine].rank < _Rank.OUT)

    def _stays(self, known: int, best: _Candidate, most: int) -> bool:
        standing = self._standings[known]
        return standing.rank is best.rank and standing.tokens - best.tokens <= most

    def _freshest(self, best: _Candidate, most: int) -> int:
        """The best engine that serves the newest weights of all, if it has room; else the best."""
        known = self._heard.get(best.engine)
        if known is None or known.load.version == self._newest:
            return best.engine
        with_room = [
            self._standings[engine]
            for engine, heard in self._heard.items()
            if heard.load.version == self._newest and not heard.load.tokens.queued
        ]
        newer = min(with_room, default=best)
        return newer.engine if newer.rank is best.rank and newer.tokens - best.tokens <= most else best.engine

    def _change(self, engine: int, requests: int, tokens: int) -> None:
        self.in_flight[engine] += requests
        self._own[engine] += tokens
        self._stand(engine, next(self._turns))

    def _stand(self, engine: int, turn: int | None = None) -> None:
        """Note how an engine of which something has changed stands."""
        heard, rank, others = self._heard.get(engine), _Rank.SERVES, 0
        if heard is not None:
            others = heard.load.tokens.of_others
            rank = self._rank(heard.load)
        if engine in self._avoided:
            rank = _Rank.AVOIDED
        turn = self._standings[engine].turn if turn is None else turn
        self._standings[engine] = _Candidate(rank, others + self._own[engine], turn, engine)

    def _rank(self, load: EngineLoad) -> _Rank:
        blinks = load.state is EngineState.UPDATING and load.paused_s < self.short_pause_s
        if load.state is not EngineState.SERVING and not blinks:
            return _Rank.OUT
        behind = self._newest - load.version if version_attempt(self._newest) == version_attempt(load.version) else 0
        return _Rank.STALE if 0 < self.max_version_lag < behind else _Rank.SERVES

    def _compare(self) -> None:
        """Who is stale depends on what the others serve."""
        newest = max((heard.load.version for heard in self._heard.values()), default=NO_VERSION)
        if newest != self._newest:
            self._newest = newest
            for engine in range(self.engines):
                self._stand(engine)

    def _forget(self, now: float) -> None:
        """What was so long ago that it says nothing any more."""
        for engine in [engine for engine, until in self._avoided.items() if until <= now]:
            del self._avoided[engine]
            self._stand(engine)
        if gone := [engine for engine, heard in self._heard.items() if heard.until <= now]:
            for engine in gone:
                del self._heard[engine]
                self._stand(engine)
            self._compare()
