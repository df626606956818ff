"""Engine actors as a worker's router sees them.

What an engine has sampled is asked for every second, so that it is not lost with the actor: another engine goes on
behind it.  It is asked for more often while somebody watches a request, who is told exactly that.  In the same call the
engine says how it stands, for the worker's router.  So each engine is asked while a request is under way anywhere, and
nobody waits for its answer.
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

_ASK_S = 1.0
_ASK_WATCHED_S = 0.2
_MARGIN_S = 5.0
"""An engine keeps the times of a request; an actor that has not by then hangs."""

OnEngineLoad = Callable[[str, EngineLoad], None]
"""Is told by its name how an engine stands."""


class RemoteEngine:
    def __init__(self, remote: Remote[Engine]) -> None:
        self._remote = remote
        self._told: dict[str, PartialReply] = {}
        """Request under way → what has come of its reply."""
        self._watches: dict[str, OnPartialReply] = {}
        self._watched = asyncio.Event()
        """Set while somebody watches."""
        self._names = map(f"{secrets.token_hex(6)}-{{}}".format, itertools.count())

    @property
    def name(self) -> str:
        return self._remote.name

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Raises :class:`EngineUnavailable`, also where the actor is gone or hangs, and what the engine raises."""
        name = next(self._names)
        self._told[name] = request.resume_from
        if watch is not None:
            self._watches[name] = watch
            self._watched.set()
        try:  # once: Ray would begin anew, and not behind what was told
            async with asyncio.timeout(request.deadline_s + request.restart_s + _MARGIN_S):
                return await self._remote.call_once(Engine.generate, replace(request, name=name))
        except (RemoteError, TimeoutError) as error:
            raise EngineUnavailable(str(error) or f"engine {self.name} hangs", self._told[name]) from error
        finally:
            del self._told[name]
            if self._watches.pop(name, None) and not self._watches:
                self._watched.clear()

    @property
    def has_requests(self) -> bool:
        """A request is under way."""
        return bool(self._told)

    async def poll_snapshots(self, is_anyone_asked: Callable[[], bool], hear: OnEngineLoad) -> None:
        """Until cancelled: keep what the engine says that it has received, and pass on how it stands."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    await self._watched.wait()
                    await asyncio.sleep(_ASK_WATCHED_S)
            if not is_anyone_asked():
                continue
            known = {name: len(told) for name, told in self._told.items()}
            with contextlib.suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    news = await self._remote.call(Engine.snapshot, known)
                for name in news.partial_replies.keys() & self._told.keys():
                    self._keep(name, news.partial_replies[name])
                hear(self.name, news.load)

    def _keep(self, name: str, later: PartialReply) -> None:
        self._told[name] = self._told[name].plus(later)
        if later and (watch := self._watches.get(name)):
            watch(self._told[name])


@contextlib.asynccontextmanager
async def polling_engines(engines: Sequence[RemoteEngine], hear: OnEngineLoad) -> AsyncGenerator[None]:
    """Each is followed meanwhile."""

    def is_anyone_asked() -> bool:
        return any(engine.has_requests for engine in engines)

    async with asyncio.TaskGroup() as group:
        following = [group.create_task(engine.poll_snapshots(is_anyone_asked, hear)) for engine in engines]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
