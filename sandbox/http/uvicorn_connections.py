"""Connections of servers that uvicorn runs, within :mod:`.connections`' limits.

uvicorn itself closes a connection that is silent after an answer.  It waits without end for the first request, for
the rest of a half one and for a client that reads no answer, and at its own limit it refuses everybody.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.http.connections import ARRIVED, ConnectionDeadlines, ConnectionStage, OpenConnections

_HEAD_BYTES = 16 << 10
"""Most bytes of a request's head."""


def server_config(app: Any, connections: OpenConnections, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server whose connections are ``connections``; ``options`` are uvicorn's own."""

    class Limited(_LimitedProtocol):
        open_connections = connections

    return uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        log_level="warning",
        log_config=None,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        **options,
    )


class _LimitedProtocol(H11Protocol):
    open_connections: OpenConnections

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._deadlines = ConnectionDeadlines(self.open_connections.limits.head_s, transport)
        self.open_connections.admit(self, transport, self._deadlines)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.stop()
        self.open_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]  as below
            self._deadlines.request_arrived()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # and no request that was sent with it has begun
            self._deadlines.await_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadlines.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._deadlines.resume_writing()

    @property
    def stage(self) -> ConnectionStage:
        """How far the connection is with its request."""
        if self.cycle is None:  # pyright: ignore[reportUnnecessaryComparison]  until the first request
            return ConnectionStage.NEW
        if self.cycle.response_complete:
            return ConnectionStage.SERVED if self.transport.get_write_buffer_size() else ConnectionStage.IDLE
        arriving = self.cycle.more_body and not self.cycle.response_started and ARRIVED not in self.cycle.scope
        return ConnectionStage.RECEIVING if arriving else ConnectionStage.SERVED

    def give_way(self) -> None:
        """Close the connection at once."""
        self.transport.abort()
