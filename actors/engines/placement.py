"""Which engine a request goes to: the router's rules as a state machine without clock, I/O or engine.

Engines are numbers below ``engines``.  A session stays on its engine, where its prefix is cached; it moves when that
engine has ``slack`` more requests of this router under way than the least loaded one, or has failed it.  An engine that
failed is avoided for ``avoid_s``.  Among equally loaded ones the one that was idle longest is next, beginning at
``first``: routers that know nothing of each other must not all begin with the same engine.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Placement:
    engines: int
    slack: int = 8
    avoid_s: float = 10.0
    max_sessions: int = 100_000
    first: int = 0
    moved: int = 0
    """Sessions sent elsewhere because their engine was overloaded or failed."""
    in_flight: list[int] = field(init=False)
    """Requests under way, by engine."""
    _levels: list[dict[int, None]] = field(init=False)
    """Load → engines that have it, idle longest first; those that are avoided stand in none."""
    _avoided: dict[int, float] = field(default_factory=dict[int, float])
    """Engine → until when."""
    _sessions: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    def __post_init__(self) -> None:
        if self.engines < 1:
            raise ValueError("a router needs at least one engine")
        self.in_flight = [0] * self.engines
        self._levels = [{(self.first + index) % self.engines: None for index in range(self.engines)}]

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def begin(self, session: str, now: float) -> int:
        """The engine for ``session``'s next request, which is under way until :meth:`end`."""
        self._forgive(now)
        least = self._least()
        known = self._sessions.get(session)
        if known is not None and self._stays(known, least):
            self._sessions.move_to_end(session)
            engine = known
        else:
            self.moved += known is not None and known != least
            engine = least
            self._sessions[session] = engine
            self._sessions.move_to_end(session)
            if len(self._sessions) > self.max_sessions:
                self._sessions.popitem(last=False)
        self._load(engine, 1)
        return engine

    def end(self, engine: int) -> None:
        """A request to ``engine`` is over, however."""
        self._load(engine, -1)

    def failed(self, engine: int, now: float) -> None:
        """``engine`` failed a request: it is avoided for a while."""
        self._levels[self.in_flight[engine]].pop(engine, None)
        self._avoided[engine] = now + self.avoid_s

    def at_hand(self, now: float) -> int:
        """How many engines are not avoided."""
        self._forgive(now)
        return self.engines - len(self._avoided)

    def another_at_hand(self, engine: int, now: float) -> bool:
        """Whether an engine other than ``engine`` is not avoided."""
        return self.at_hand(now) > (engine not in self._avoided)

    def _stays(self, known: int, least: int) -> bool:
        if known in self._avoided and len(self._avoided) < self.engines:
            return False
        return self.in_flight[known] - self.in_flight[least] <= self.slack

    def _least(self) -> int:
        for level in self._levels:
            for engine in level:
                return engine
        return min(self._avoided, key=lambda engine: (self.in_flight[engine], engine))

    def _load(self, engine: int, change: int) -> None:
        old = self.in_flight[engine]
        self.in_flight[engine] = old + change
        if engine not in self._avoided:
            del self._levels[old][engine]
            self._enter(engine)

    def _enter(self, engine: int) -> None:
        while len(self._levels) <= self.in_flight[engine]:
            self._levels.append({})
        self._levels[self.in_flight[engine]][engine] = None

    def _forgive(self, now: float) -> None:
        if self._avoided:
            for engine in [engine for engine, until in self._avoided.items() if until <= now]:
                del self._avoided[engine]
                self._enter(engine)
