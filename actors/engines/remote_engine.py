"""Engine actors as a worker's router sees them.

What an engine has sampled is asked for every second, so that it is not lost with the actor: another engine goes on
behind it.  In the same call it says how it stands, for the worker's router.  So each engine is asked while a request is
under way anywhere, and nobody waits for its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from actors.engines.engine import Engine
from actors.engines.messages import EngineLoad, EngineUnavailable, GenerateReply, GenerateRequest, Received
from actors.remote import Remote, RemoteError

_ASK_S = 1.0

Hear = Callable[[str, EngineLoad], None]
"""Is told by its name how an engine stands."""


class RemoteEngine:
    def __init__(self, remote: Remote[Engine]) -> None:
        self._remote = remote
        self._told: dict[str, Received] = {}
        """Request under way → what has come of its reply."""
        self._names = map(f"{secrets.token_hex(6)}-{{}}".format, itertools.count())

    @property
    def name(self) -> str:
        return self._remote.name

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        """Raises :class:`EngineUnavailable`, also where the actor is gone, and what the engine raises."""
        name = next(self._names)
        self._told[name] = request.received
        try:
            return await self._remote.call(Engine.generate, replace(request, name=name))
        except RemoteError as error:
            raise EngineUnavailable(str(error), self._told[name]) from error
        finally:
            del self._told[name]

    @property
    def is_asked(self) -> bool:
        """A request is under way."""
        return bool(self._told)

    async def follow(self, is_anyone_asked: Callable[[], bool], hear: Hear) -> None:
        """Until cancelled: keep what the engine says that it has received, and pass on how it stands."""
        while True:
            await asyncio.sleep(_ASK_S)
            if not is_anyone_asked():
                continue
            with contextlib.suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    news = await self._remote.call(Engine.news, set(self._told))
                self._told |= {name: said for name, said in news.received.items() if name in self._told}
                hear(self.name, news.load)


@contextlib.asynccontextmanager
async def followed(engines: Sequence[RemoteEngine], hear: Hear) -> AsyncGenerator[None]:
    """Each is followed meanwhile."""

    def is_anyone_asked() -> bool:
        return any(engine.is_asked for engine in engines)

    async with asyncio.TaskGroup() as group:
        following = [group.create_task(engine.follow(is_anyone_asked, hear)) for engine in engines]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
