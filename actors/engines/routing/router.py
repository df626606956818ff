"""Sends each request to the engine that has its session's prefix, unless that engine is overloaded or has failed.

Each worker has one router, which knows the requests that pass through it and what engines report.
:mod:`.load_balancer` chooses the engine; the router sends the request and retries it.  While another engine is
available a request waits only two seconds for one that does not serve; otherwise it waits as long as a restart may
take.  The next engine continues behind the tokens that the last one sampled, and never before those that a watcher was
shown.  All attempts together are bounded by the request's own deadlines, which each engine enforces.
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

_PATIENCE_S, _RETRY_PAUSE_S = 2.0, 0.2


class EngineLike(Protocol):
    """A local or remote engine, as far as a router needs it."""

    @property
    def name(self) -> str: ...

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Raises :class:`EngineUnavailable` with the tokens received when the request's deadlines have passed."""
        ...


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """A router's counters."""

    in_flight: dict[str, int]
    """Engine → requests in flight from this router."""
    tokens: dict[str, int]
    """Engine → expected load in tokens, from all routers."""
    sessions: int
    moved: int
    """Sessions moved because their engine was overloaded, stale, out or failed."""


class Router:
    """A worker's way to the engines: chooses one for each request and retries.  ``first`` is the engine of the first
    session; ``clock`` returns seconds, and ``pause`` waits for some."""

    def __init__(
        self,
        engines: Sequence[EngineLike],
        *,
        first: int = 0,
        max_versions_behind: int = 0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engines, self._clock, self._pause = tuple(engines), clock, pause
        self._balancer = LoadBalancer(len(engines), first=first, max_versions_behind=max_versions_behind)
        self._numbers = {engine.name: number for number, engine in enumerate(engines)}

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Sample one continuation on some engine.  Raises :class:`EngineUnavailable` once the request's deadlines have
        passed, and at once any error that is no infrastructure failure."""

        def on_partial(received: PartialReply) -> None:
            nonlocal request
            request = replace(request, resume_from=received)
            if watch is not None:
                watch(received)

        allowed_s = request.deadline_s + request.restart_s
        end = self._clock() + allowed_s
        last, balancer = "no engine was tried", self._balancer
        while (left := end - self._clock()) > 0:
            index = balancer.begin_request(request.session, request.token_budget, self._clock())
            engine = self._engines[index]
            sampling_s = min(left, request.deadline_s)
            patience, restart_s = None, left - sampling_s
            if balancer.has_other_available(index, self._clock()):
                patience, restart_s = _PATIENCE_S, 0.0
            attempt = replace(request, deadline_s=sampling_s, restart_s=restart_s, patience_s=patience)
            try:
                return await engine.generate(attempt, on_partial if watch is not None else None)
            except InfraError as error:
                last = str(error)
                if isinstance(error, EngineUnavailable) and len(error.partial_reply) > len(request.resume_from):
                    request = replace(request, resume_from=error.partial_reply)
                if not isinstance(error, RequestTimedOut):
                    balancer.mark_failed(index, self._clock(), busy=isinstance(error, EngineBusy))
            finally:
                balancer.end_request(index, request.token_budget)
            if not balancer.count_available(self._clock()):
                await self._pause(_RETRY_PAUSE_S)
        raise EngineUnavailable(f"no engine answered within {allowed_s:g} s: {last}")

    def update_load(self, engine: str, load: EngineLoad) -> None:
        """Take an engine's report of its load."""
        self._balancer.update_load(self._numbers[engine], load, self._clock())

    def statistics(self) -> RouterStatistics:
        balancer, names = self._balancer, self._numbers
        return RouterStatistics(
            dict(zip(names, balancer.in_flight, strict=True)),
            dict(zip(names, balancer.tokens, strict=True)),
            balancer.sessions,
            balancer.moved,
        )
