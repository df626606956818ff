"""State machine that tracks a socket's connections from ZeroMQ's monitor events.

ZeroMQ silently drops a peer whose handshake fails or whose frame is above the limit; only a monitor of the socket sees
it (:class:`protocol.stream.zmq_sockets.SocketMonitor`).
"""

from __future__ import annotations

from collections.abc import Callable
from socket import AF_INET, SOCK_STREAM, fromfd
from typing import NamedTuple

import zmq

from protocol.stream.inbox import StreamRefusal
from protocol.stream.messages import RefusalReason

_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
LISTENING_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _FAILED
"""Events to monitor on a bound socket.  Rejected keys are reported by the authenticator, which knows them."""
CONNECTING_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _FAILED
"""Events to monitor on a connecting socket."""
_KEYS = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "one end has keys and the other has none",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "it was given another receiver's key",
}
"""Handshake failures that are due to keys."""


class ConnectionEnd(NamedTuple):
    """A connection that ended."""

    peer: str
    """Address of the other end, if it was the one that connected."""
    failure: StreamRefusal | None
    """Failure of the handshake; None if the connection was open."""


def peer_address(descriptor: int) -> str:
    """Return the address of the other end of a connection that ZeroMQ holds; ``?`` if it has gone."""
    try:
        with fromfd(descriptor, AF_INET, SOCK_STREAM) as connection:
            host, port, *_ = connection.getpeername()
    except (OSError, ValueError):
        return "?"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConnectionTracker:
    """Tracks connections by descriptor; ZeroMQ reports a handshake failure just before the disconnect."""

    def __init__(self, address_of: Callable[[int], str] = peer_address) -> None:
        self._address_of = address_of
        self._peers: dict[int, str] = {}
        self._failure: StreamRefusal | None = None

    def handle_event(self, event: int, value: int) -> ConnectionEnd | None:
        """Return the connection that ended with ``event``, or None."""
        match event:
            case zmq.EVENT_ACCEPTED:
                self._peers[value] = self._address_of(value)
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._failure = StreamRefusal(
                    RefusalReason.HANDSHAKE, f"it ended in the handshake ({zmq.strerror(value)})"
                )
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL if value in _KEYS:
                self._failure = StreamRefusal(RefusalReason.UNAUTHENTICATED, _KEYS[value])
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._failure = StreamRefusal(
                    RefusalReason.HANDSHAKE, f"it does not speak ZeroMQ's protocol (error {value:#x})"
                )
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._failure = StreamRefusal(RefusalReason.UNAUTHENTICATED, "its public key is not admitted")
            case zmq.EVENT_DISCONNECTED:
                ended = ConnectionEnd(self._peers.pop(value, "?"), self._failure)
                self._failure = None
                return ended
            case _:
                pass
        return None
