"""Connections of servers that aiohttp runs, within :mod:`.connections`' limits.

aiohttp parses all that has arrived at once, which takes long if it is chunks of one byte: little is read at a time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from aiohttp import web

from sandbox.http.connections import ConnectionDeadlines, ConnectionStage, OpenConnections

_READ_BYTES = 4 << 10
"""Most bytes that are read of one connection before others have their turn: 1 to 2 ms of one-byte chunks."""


def application_runner(app: web.Application) -> web.AppRunner:
    """Return a runner of ``app`` for :class:`LimitedSite`: a client that disconnects cancels its handler, and bodies
    arrive as they were sent, though they be compressed."""
    return web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=0, handle_signals=False, auto_decompress=False
    )


class LimitedSite(web.BaseSite):
    """Listens on a socket that is bound; its connections are among ``connections``.

    They count as those of ``client``, where only one can reach the socket, else of the address that each comes from.
    The application's handlers must run in :func:`serving`.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        listening: socket.socket,
        connections: OpenConnections,
        client: str | None = None,
    ) -> None:
        super().__init__(runner)
        self._listening, self._connections, self._client = listening, connections, client
        self._buffer = bytearray(_READ_BYTES)

    @property
    def name(self) -> str:
        """The address of the socket."""
        return str(self._listening.getsockname())

    async def start(self) -> None:
        """Listen."""
        await super().start()
        protocol = self._runner.server
        assert protocol is not None  # noqa: S101  the base class has looked
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(protocol(), self._connections, self._client, self._buffer), sock=self._listening
        )


@contextmanager
def serving(request: web.Request) -> Generator[None]:
    """Count the request's connection as served during the block."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, _Connection):  # it is closed, or not a limited site's
        yield
        return
    with connection.serving(request):
        yield


class _Connection(asyncio.BufferedProtocol):
    """Passes what happens on a connection on to aiohttp's protocol.

    Connections of one event loop share ``buffer``: nothing runs between a read and its :meth:`buffer_updated`."""

    def __init__(
        self, inner: asyncio.Protocol, connections: OpenConnections, client: str | None, buffer: bytearray
    ) -> None:
        self._inner, self._connections, self._client, self._buffer = inner, connections, client, buffer
        self._request: web.Request | None = None
        self._waiting = ConnectionStage.NEW

    @property
    def stage(self) -> ConnectionStage:
        if self._request is None:
            return ConnectionStage.SERVED if self._transport.get_write_buffer_size() else self._waiting
        return ConnectionStage.SERVED if self._request.content.is_eof() else ConnectionStage.RECEIVING

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._deadlines = ConnectionDeadlines(self._connections.limits.head_s, self._transport)
        self._inner.connection_made(self._transport)
        self._connections.admit(self, self._transport, self._deadlines, self._client)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.stop()
        self._connections.remove(self)
        self._inner.connection_lost(exc)

    @contextmanager
    def serving(self, request: web.Request) -> Generator[None]:
        self._deadlines.request_arrived()
        self._request = request
        try:
            yield
        finally:
            self._request, self._waiting = None, ConnectionStage.IDLE
            self._deadlines.await_request()

    def give_way(self) -> None:
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._deadlines.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
        self._deadlines.resume_writing()
