"""Engine actors as a worker's router sees them.

Partial replies are polled every second, so that they are not lost with the actor: another engine continues after them.
While a caller watches a request, they are polled more often and passed to the caller.  The same call returns the
engine's load for the worker's router, so every engine is polled while any request is in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from actors.engines.interface import Engine
from actors.engines.messages import (
    EngineLoad,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
)
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError

POLL_INTERVAL_S = 1.0
WATCHED_POLL_INTERVAL_S = 0.2
MARGIN_S = 5.0
"""Seconds beyond a request's deadlines after which an actor counts as hung; engines enforce the deadlines
themselves."""

OnEngineLoad = Callable[[str, EngineLoad], None]
"""Called with an engine's name and load."""


class RemoteEngine:
    """An engine actor, with the tokens received of its requests in flight."""

    def __init__(self, remote: Remote[Engine]) -> None:
        self._remote = remote
        self._received: dict[str, PartialReply] = {}
        """Request name → tokens received of its reply."""
        self._watches: dict[str, OnPartialReply] = {}
        self._watched = asyncio.Event()
        """Set while a request is watched."""
        self._names = map(f"{secrets.token_hex(6)}-{{}}".format, itertools.count())

    @property
    def name(self) -> str:
        return self._remote.name

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Sample one continuation.  Raises :class:`EngineUnavailable`, also if the actor is gone or hangs, and the
        engine's own errors."""
        name = next(self._names)
        self._received[name] = request.resume_from
        if watch is not None:
            self._watches[name] = watch
            self._watched.set()
        try:  # once: a retry by Ray would not continue after the tokens received
            async with asyncio.timeout(request.deadline_s + request.restart_s + MARGIN_S):
                return await self._remote.call_once(Engine.generate, replace(request, name=name))
        except (RemoteError, TimeoutError) as error:
            raise EngineUnavailable(str(error) or f"engine {self.name} hangs", self._received[name]) from error
        finally:
            del self._received[name]
            if self._watches.pop(name, None) and not self._watches:
                self._watched.clear()

    @property
    def has_requests(self) -> bool:
        """True if a request is in flight."""
        return bool(self._received)

    async def poll_snapshots(self, has_requests: Callable[[], bool], on_load: OnEngineLoad) -> None:
        """Until cancelled, poll partial replies and pass on the engine's load, while ``has_requests`` returns true."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._watched.wait()
                    await asyncio.sleep(WATCHED_POLL_INTERVAL_S)
            if not has_requests():
                continue
            known = {name: len(reply) for name, reply in self._received.items()}
            with contextlib.suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    snapshot = await self._remote.call(Engine.snapshot, known)
                for name in snapshot.partial_replies.keys() & self._received.keys():
                    self._keep(name, snapshot.partial_replies[name])
                on_load(self.name, snapshot.load)

    def _keep(self, name: str, later: PartialReply) -> None:
        self._received[name] = self._received[name].plus(later)
        if later and (watch := self._watches.get(name)):
            watch(self._received[name])


@contextlib.asynccontextmanager
async def polling_engines(engines: Sequence[RemoteEngine], on_load: OnEngineLoad) -> AsyncGenerator[None]:
    """Poll the engines during the block."""

    def has_requests() -> bool:
        return any(engine.has_requests for engine in engines)

    async with asyncio.TaskGroup() as group:
        polling = [group.create_task(engine.poll_snapshots(has_requests, on_load)) for engine in engines]
        try:
            yield
        finally:
            for task in polling:
                task.cancel()
