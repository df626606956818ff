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

from actors.gateway.api_types import StreamEncoder
from actors.gateway.chat_request import ChatRequest, GatewayRequestError
from actors.gateway.completion import GatewayCompletion
from actors.gateway.partial_completion import PartialCompletion
from actors.gateway.session import GatewaySession
from protocol.errors import InfraError


class _PendingCall:
    """One call: its newest beginning, then its outcome."""

    def __init__(self) -> None:
        self.outcome: GatewayCompletion | GatewayRequestError | InfraError | None = None
        self._begun: PartialCompletion | None = None
        self._news = asyncio.Event()

    async def ask(self, session: GatewaySession, asked: ChatRequest) -> None:
        """Every error that the session raises is the outcome."""
        try:
            self.outcome = await session.complete(asked, self._came)
        except (GatewayRequestError, InfraError) as error:
            self.outcome = error
        self._news.set()

    def _came(self, begun: PartialCompletion) -> None:
        self._begun = begun
        self._news.set()

    async def newest(self, until: float) -> PartialCompletion | None:
        """Once there is news; None where none came until then, on the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        return self._begun


async def stream_response(
    request: web.Request, session: GatewaySession, asked: ChatRequest, events: StreamEncoder, quiet_s: float
) -> web.StreamResponse:
    """Raises what :meth:`Session.answer` raises, where nothing has been told yet."""
    under_way, clock = _PendingCall(), asyncio.get_running_loop().time
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
                told = events.encode_partial(begun.parse(), begun.prompt_tokens)
            else:
                told, quiet_since = events.ping if response.prepared else b"", clock()
            if told:
                await tell(told)
                quiet_since = clock()
    match under_way.outcome:
        case GatewayCompletion() as answer:
            await tell(events.encode_end(answer))
        case error if response.prepared:
            await tell(events.encode_failure(to_request_error(error)))
        case error:
            raise error
    return response


def to_request_error(error: GatewayRequestError | InfraError) -> GatewayRequestError:
    """An engine's failure as a client is told of it."""
    if isinstance(error, GatewayRequestError):
        return error
    return GatewayRequestError(f"no engine answered: {error}", status=503, code="engine_unavailable")
