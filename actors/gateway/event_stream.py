"""Streaming of a reply over HTTP while it is sampled.

The engine's side keeps only the newest partial reply and never waits; the writer reads it once the client has received
the previous data.  Headers are sent with the first text, so a failure before that has its own status, and a later one
is the last event.  After ``quiet_s`` without data a ping is sent.  A client that disconnects cancels its handler, and
with it the sampling.
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
    """One call: its newest partial reply, then its outcome."""

    def __init__(self) -> None:
        self.outcome: GatewayCompletion | GatewayRequestError | InfraError | None = None
        self._partial: PartialCompletion | None = None
        self._changed = asyncio.Event()

    async def run(self, session: GatewaySession, request: ChatRequest) -> None:
        """Complete the request; an error of the session is the outcome."""
        try:
            self.outcome = await session.complete(request, self._on_partial)
        except (GatewayRequestError, InfraError) as error:
            self.outcome = error
        self._changed.set()

    def _on_partial(self, partial: PartialCompletion) -> None:
        self._partial = partial
        self._changed.set()

    async def newest(self, until: float) -> PartialCompletion | None:
        """Wait for a change and return the newest partial reply; None if there is no change by ``until`` (loop
        time)."""
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return None
        self._changed.clear()
        return self._partial


async def stream_response(
    request: web.Request, session: GatewaySession, chat: ChatRequest, events: StreamEncoder, quiet_s: float
) -> web.StreamResponse:
    """Stream the reply to ``chat``.  Raises the errors of :meth:`GatewaySession.complete` before anything was sent."""
    call, clock = _PendingCall(), asyncio.get_running_loop().time
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})

    async def send(data: bytes) -> None:
        with contextlib.suppress(ClientConnectionResetError):  # the handler is about to be cancelled
            await response.prepare(request)
            await response.write(data)

    async with asyncio.TaskGroup() as group:
        group.create_task(call.run(session, chat))
        quiet_since = clock()
        while call.outcome is None:
            if partial := await call.newest(quiet_since + quiet_s):
                data = events.encode_partial(partial.parse(), partial.prompt_tokens)
            else:
                data, quiet_since = events.ping if response.prepared else b"", clock()
            if data:
                await send(data)
                quiet_since = clock()
    match call.outcome:
        case GatewayCompletion() as answer:
            await send(events.encode_end(answer))
        case error if response.prepared:
            await send(events.encode_failure(to_request_error(error)))
        case error:
            raise error
    return response


def to_request_error(error: GatewayRequestError | InfraError) -> GatewayRequestError:
    """Return the error that a client gets, also for a failure of the engine."""
    if isinstance(error, GatewayRequestError):
        return error
    return GatewayRequestError(f"no engine answered: {error}", status=503, code="engine_unavailable")
