"""A streamed reply over HTTP: what is said of it goes out while it is sampled.

The engine's side leaves the newest beginning and waits for nobody; the writer reads it when the client has taken what
went before.  Headers go out with the first text, so until then a failure has its own status; after that it is an event,
the last.  A client that hears nothing for ``quiet_s`` is sent a ping; one that leaves cancels its handler, and with it
the sampling.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import ClientConnectionResetError, web

from actors.gateway.answer import Answer
from actors.gateway.api import Events
from actors.gateway.asked import Asked, Refused
from actors.gateway.beginning import Begun
from actors.gateway.session import Session
from protocol.errors import InfraError


class _UnderWay:
    """One call: its newest beginning, then its outcome."""

    def __init__(self) -> None:
        self.outcome: Answer | Refused | InfraError | None = None
        self._begun: Begun | None = None
        self._news = asyncio.Event()

    async def ask(self, session: Session, asked: Asked) -> None:
        """Every error that the session raises is the outcome."""
        try:
            self.outcome = await session.answer(asked, self._came)
        except (Refused, InfraError) as error:
            self.outcome = error
        self._news.set()

    def _came(self, begun: Begun) -> None:
        self._begun = begun
        self._news.set()

    async def newest(self, until: float) -> Begun | None:
        """Once there is news; None where none came until then, on the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        return self._begun


async def respond(
    request: web.Request, session: Session, asked: Asked, events: Events, quiet_s: float
) -> web.StreamResponse:
    """Raises what :meth:`Session.answer` raises, where nothing has been told yet."""
    under_way, clock = _UnderWay(), asyncio.get_running_loop().time
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})

    async def tell(told: bytes) -> None:
        with contextlib.suppress(ClientConnectionResetError):  # whose handler is about to be cancelled
            await response.prepare(request)
            await response.write(told)

    async with asyncio.TaskGroup() as group:
        group.create_task(under_way.ask(session, asked))
        quiet_since = clock()
        while under_way.outcome is None:
            if begun := await under_way.newest(quiet_since + quiet_s):
                told = events.more(begun.said(), begun.prompt_tokens)
            else:
                told, quiet_since = events.ping if response.prepared else b"", clock()
            if told:
                await tell(told)
                quiet_since = clock()
    match under_way.outcome:
        case Answer() as answer:
            await tell(events.end(answer))
        case error if response.prepared:
            await tell(events.failed(failure(error)))
        case error:
            raise error
    return response


def failure(error: Refused | InfraError) -> Refused:
    """An engine's failure as a client is told of it."""
    if isinstance(error, Refused):
        return error
    return Refused(f"no engine answered: {error}", status=503, code="engine_unavailable")
