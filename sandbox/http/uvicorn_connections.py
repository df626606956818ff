"""Connections of servers that uvicorn runs, within :mod:`.connections`' limits.

uvicorn itself closes a connection that is silent for 5 s after an answer, while its client may be about to use it: here
the limits say when.  It waits without end for the first request, for the rest of a half one and for a client that reads
no answer, and at its own limit it refuses everybody.  It also parses all that has arrived at once, which takes half a
second for 256 KiB in chunks of one byte: here the connections take turns.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.http.connections import ARRIVED, ConnectionDeadlines, ConnectionStage, OpenConnections

_HEAD_BYTES = 16 << 10
"""Most bytes of a request's head."""
_TURN_EVENTS = 64
"""Most events that are parsed of one connection before others have their turn: less than 1 ms of one-byte chunks."""


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
        timeout_keep_alive=math.ceil(connections.limits.head_s) + 1,
        **options,
    )


class _TurnParser(h11.Connection):
    """Gives at most :data:`_TURN_EVENTS` events in a turn."""

    held_back = False
    """True if there may be more that arrived already."""
    _left = _TURN_EVENTS

    def begin_turn(self) -> None:
        self.held_back, self._left = False, _TURN_EVENTS

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        if not self._left:
            self.held_back = True
            return h11.NEED_DATA
        self._left -= 1
        return super().next_event()


class _TurnFlowControl(FlowControl):
    """Reads nothing while what arrived waits for a turn."""

    awaits_turn = False

    def resume_reading(self) -> None:
        if not self.awaits_turn:
            super().resume_reading()


class _LimitedProtocol(H11Protocol):
    open_connections: OpenConnections

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.conn: _TurnParser = _TurnParser(h11.SERVER, _HEAD_BYTES)
        self.flow = self._turns = _TurnFlowControl(transport)
        self._deadlines = ConnectionDeadlines(self.open_connections.limits.head_s, transport)
        self.open_connections.admit(self, transport, self._deadlines)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.stop()
        self.open_connections.remove(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        self.conn.begin_turn()
        super().handle_events()
        if self.conn.held_back and not self._turns.awaits_turn:
            self._turns.awaits_turn = True
            self.loop.call_soon(self._take_turn)
        if self._turns.awaits_turn:
            self.transport.pause_reading()
        if self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]  as below
            self._deadlines.request_arrived()

    def _take_turn(self) -> None:
        self._turns.awaits_turn = self.flow.read_paused = False
        if self.transport.is_closing():
            return
        self.handle_events()
        if not (self._turns.awaits_turn or self.flow.read_paused):
            self.transport.resume_reading()

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
