"""A connection carried by one HTTP request: its body is one direction, and its reply, which begins at once, the other.

So a server hands a connection to a client that it could not reach itself. Either end closes the connection by ending
its direction; a request that breaks does the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sandbox.http.connections import ARRIVED
from sandbox.http.endpoints import as_response, refuse_other_sites
from sandbox.http.failures import to_http_error

LEASE_PARAMETER = "lease_id"
AGENT_CONNECTION_PATH = "/agent_connection"
"""Waits for the next connection of a lease's agent program, and carries it; 204 if there was none for a while."""
NO_CONNECTION_S = 30.0
"""Seconds after which a request is told that there was no connection, before a proxy between takes it for dead."""
NO_CONNECTION_STATUS = 204
MOST_CONNECTIONS = 64
"""Maximum connections of one sandbox at a time, carried or waiting; further ones are closed."""
CHUNK_BYTES = 64 << 10
"""Most bytes of a connection that are carried at a time."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamCall:
    """One such request."""

    request: Request
    _send: Send
    begun: bool = False
    """True once the reply's status was sent."""

    @property
    def lease_id(self) -> str:
        return self.request.query_params.get(LEASE_PARAMETER, "")

    async def begin(self, status: int = 200) -> None:
        """Send the reply's status."""
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": []})

    async def write(self, data: bytes) -> None:
        """Send a part of the reply."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the reply."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class StreamEndpoint:
    """An ASGI application of one path that serves such requests, which count as arrived though their bodies go on."""

    def __init__(self, serve: Callable[[StreamCall], Awaitable[None]]) -> None:
        """``serve`` begins the reply once it has a connection.  Its exceptions before that become an error reply, and
        later ones break the connection of the request."""
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = StreamCall(Request(scope, receive), send)
        scope[ARRIVED] = True
        try:
            refuse_other_sites(call.request)
            await self._serve(call)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  the boundary: a failure becomes the reply, and a defect is logged
            failure = to_http_error(error)
            if failure.status == 500:
                _log.exception("%s failed by a defect", scope["path"])
            if not call.begun:
                await as_response(failure.reply())(scope, receive, send)
            return  # a reply that has begun has no end: the server closes the connection
        await call.end()

    def route(self, path: str) -> Route:
        return Route(path, self, methods=["POST"])
