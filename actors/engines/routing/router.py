"""Sends each request to the engine that knows its session best, unless that one is overloaded or in trouble.

One router in each worker; it knows what passed through itself, and what engines say of themselves.  Which engine is
next is :mod:`.placement`'s to say; here requests are sent, and sent again.  While another engine is at hand a request
waits only ``patience_s`` for one that serves nobody; without another it waits as long as a restart may take.  The next
engine goes on behind what the last one has sampled, and never before what a watcher was told.  All attempts together
end with both times of the request, which each engine keeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from actors.engines.messages import (
    EngineBusy,
    EngineLoad,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    RequestTimedOut,
)
from actors.engines.routing.load_balancer import LoadBalancer
from protocol.errors import InfraError

_PAUSE_S = 0.2


class EngineLike(Protocol):
    """An engine, here or far away."""

    @property
    def name(self) -> str: ...

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Raises :class:`EngineUnavailable` with what has come when the times of the request are over."""
        ...


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    in_flight: dict[str, int]
    """Engine → requests under way from this router."""
    tokens: dict[str, int]
    """Engine → load that is expected there, of all routers."""
    sessions: int
    moved: int
    """Sessions sent elsewhere because their engine was overloaded, stale, out or failed."""


class Router:
    """See the module.  ``first`` is the engine of its first session; ``clock`` and ``pause`` are for tests."""

    def __init__(
        self,
        engines: Sequence[EngineLike],
        *,
        first: int = 0,
        slack: int = 8,
        patience_s: float = 2.0,
        avoid_s: float = 10.0,
        max_version_lag: int = 0,
        max_sessions: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engines, self._patience_s, self._clock, self._pause = tuple(engines), patience_s, clock, pause
        self._placement = LoadBalancer(
            len(engines), slack, avoid_s, max_sessions=max_sessions, first=first, max_version_lag=max_version_lag
        )
        self._numbers = {engine.name: number for number, engine in enumerate(engines)}

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Sample one continuation on some engine.  Raises :class:`EngineUnavailable` when the request's time is over,
        and at once whatever is not an infrastructure failure."""

        def told(received: PartialReply) -> None:
            nonlocal request
            request = replace(request, resume_from=received)
            if watch is not None:
                watch(received)

        allowed_s = request.deadline_s + request.restart_s
        end = self._clock() + allowed_s
        last, placement = "no engine was tried", self._placement
        while (left := end - self._clock()) > 0:
            index = placement.begin_request(request.session, request.token_budget, self._clock())
            engine = self._engines[index]
            sampling_s = min(left, request.deadline_s)
            patience, restart_s = None, left - sampling_s
            if placement.has_other_available(index, self._clock()):
                patience, restart_s = self._patience_s, 0.0
            attempt = replace(request, deadline_s=sampling_s, restart_s=restart_s, patience_s=patience)
            try:
                return await engine.generate(attempt, told if watch is not None else None)
            except InfraError as error:
                last = str(error)
                if isinstance(error, EngineUnavailable) and len(error.partial_reply) > len(request.resume_from):
                    request = replace(request, resume_from=error.partial_reply)
                if not isinstance(error, RequestTimedOut):
                    placement.mark_failed(index, self._clock(), busy=isinstance(error, EngineBusy))
            finally:
                placement.end_request(index, request.token_budget)
            if not placement.count_available(self._clock()):
                await self._pause(_PAUSE_S)
        raise EngineUnavailable(f"no engine answered within {allowed_s:g} s: {last}")

    def update_load(self, engine: str, load: EngineLoad) -> None:
        """What an engine says of itself."""
        self._placement.update_load(self._numbers[engine], load, self._clock())

    def statistics(self) -> RouterStatistics:
        placement, names = self._placement, self._numbers
        return RouterStatistics(
            dict(zip(names, placement.in_flight, strict=True)),
            dict(zip(names, placement.tokens, strict=True)),
            placement.sessions,
            placement.moved,
        )
