"""What became of a socket's connections, from what ZeroMQ says of them: a state machine.

ZeroMQ drops a peer whose handshake fails, or one of whose frames is above the limit, before a word of it can be read,
and tells nobody but a monitor of the socket (:class:`protocol.stream.zmq_sockets.Monitor`).
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
"""What to hear of a bound socket.  Keys that are not admitted are the authenticator's to name: it knows them."""
CONNECTING_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _FAILED
"""What to hear of a socket that connects."""
_KEYS = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "one end has keys and the other has none",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "it was given another receiver's key",
}
"""Failures of a handshake that are a matter of keys."""


class ConnectionEnd(NamedTuple):
    """A connection that is no more."""

    peer: str
    """Address of the other end, where that was the one to connect."""
    failure: StreamRefusal | None
    """Why its handshake failed; None for one that was open."""


def peer_address(descriptor: int) -> str:
    """The other end of a connection that ZeroMQ holds; ``?`` where it has gone meanwhile."""
    try:
        with fromfd(descriptor, AF_INET, SOCK_STREAM) as connection:
            host, port, *_ = connection.getpeername()
    except (OSError, ValueError):
        return "?"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConnectionTracker:
    """ZeroMQ names a connection by its descriptor, and the failure of a handshake just before its end."""

    def __init__(self, address_of: Callable[[int], str] = peer_address) -> None:
        self._address_of = address_of
        self._peers: dict[int, str] = {}
        self._failure: StreamRefusal | None = None

    def handle_event(self, event: int, value: int) -> ConnectionEnd | None:
        """The connection that ended with ``event``, if one did."""
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
