"""Engine actors as a worker's router sees them.

What an engine has sampled is asked for every second, so that it is not lost with the actor: another engine goes on
behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace

from actors.engines.engine import Engine
from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest, Received
from actors.remote import Remote, RemoteError

_ASK_S = 1.0


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

    async def follow(self) -> None:
        """Until cancelled: keep what the engine says that it has received."""
        while True:
            await asyncio.sleep(_ASK_S)
            if not self._told:
                continue
            with contextlib.suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    received = await self._remote.call(Engine.received, set(self._told))
                self._told |= {name: said for name, said in received.items() if name in self._told}


@contextlib.asynccontextmanager
async def followed(engines: Iterable[RemoteEngine]) -> AsyncGenerator[None]:
    """Each is followed meanwhile."""
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(engine.follow()) for engine in engines]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
