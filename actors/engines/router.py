"""Sends each request to the engine that knows its session best, unless that one is overloaded or in trouble.

One router in each worker; it knows only what passed through itself.  A session stays on its engine, where its prefix is
cached; it moves when that engine has ``slack`` more requests of this router under way than the least loaded one, or
has failed it.  An engine that failed is avoided for ``avoid_s``, then tried again.  While another engine is at hand a
request waits only ``patience_s`` for one that serves nobody.  All attempts together end at the request's deadline; an
engine that does not keep it is given up ``_MARGIN_S`` later.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest
from protocol.errors import InfraError

_PAUSE_S = 0.2
_MARGIN_S = 5.0


class EngineLike(Protocol):
    """An engine, here or far away."""

    @property
    def name(self) -> str: ...

    async def generate(self, request: GenerateRequest) -> GenerateReply: ...


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    in_flight: dict[str, int]
    """Engine → requests under way from this router."""
    sessions: int
    moved: int
    """Sessions sent elsewhere because their engine was overloaded or failed."""


@dataclass(slots=True, eq=False)
class _Target:
    engine: EngineLike
    in_flight: int = 0
    avoid_until: float = 0.0


class Router:
    """See the module.  ``clock`` and ``pause`` are for tests."""

    def __init__(
        self,
        engines: Sequence[EngineLike],
        *,
        slack: int = 8,
        patience_s: float = 2.0,
        avoid_s: float = 10.0,
        max_sessions: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not engines:
            raise ValueError("a router needs at least one engine")
        self._targets = [_Target(engine) for engine in engines]
        self._slack, self._patience_s, self._avoid_s = slack, patience_s, avoid_s
        self._clock, self._pause = clock, pause
        self._sessions: OrderedDict[str, _Target] = OrderedDict()
        self._max_sessions = max_sessions
        self._moved = 0

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        """Sample one continuation on some engine.  Raises :class:`EngineUnavailable` after the request's deadline, and
        at once whatever is not an infrastructure failure."""
        deadline = self._clock() + request.deadline_s
        last = "no engine was tried"
        while (left := deadline - self._clock()) > 0:
            target = self._choose(request.session)
            patience = self._patience_s if self._another_is_at_hand(target) else None
            target.in_flight += 1
            try:
                async with asyncio.timeout(left + _MARGIN_S):
                    return await target.engine.generate(replace(request, deadline_s=left, patience_s=patience))
            except (InfraError, TimeoutError) as error:
                last = str(error) or f"engine {target.engine.name} hangs"
                target.avoid_until = self._clock() + self._avoid_s
            finally:
                target.in_flight -= 1
            if not self._at_hand():
                await self._pause(_PAUSE_S)
        raise EngineUnavailable(f"no engine answered within {request.deadline_s:g} s: {last}")

    def statistics(self) -> RouterStatistics:
        return RouterStatistics(
            {target.engine.name: target.in_flight for target in self._targets},
            len(self._sessions),
            self._moved,
        )

    def _at_hand(self) -> list[_Target]:
        now = self._clock()
        return [target for target in self._targets if target.avoid_until <= now]

    def _another_is_at_hand(self, target: _Target) -> bool:
        return any(other is not target for other in self._at_hand())

    def _choose(self, session: str) -> _Target:
        """The session's engine, or the least loaded one if it has none or should leave it; all when none is at hand."""
        candidates = self._at_hand() or self._targets
        least = min(candidates, key=lambda target: target.in_flight)
        known = self._sessions.get(session)
        if known in candidates and known.in_flight - least.in_flight <= self._slack:
            self._sessions.move_to_end(session)
            return known
        if known is not None and known is not least:
            self._moved += 1
        self._sessions[session] = least
        self._sessions.move_to_end(session)
        if len(self._sessions) > self._max_sessions:
            self._sessions.popitem(last=False)
        return least
