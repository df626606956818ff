"""Bounds the connections of a server, of one client and in all.

At the bound a new connection takes the place of one that only waits, of the client that has most connections: first of
those that have sent no request yet, then of those between two requests, then of those whose request is still arriving,
each time the oldest.  So a client that opens connections and sends nothing, or half of a request, shuts nobody out.  A
connection whose request is being served is never closed for a new one, which is refused where all are; but one whose
client reads nothing of what was sent to it ends at a deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from typing import Protocol

_PART = 16
"""One in so many of a client's waiting connections gives way at a time: a flood must not search all each time."""
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
"""Answer to a connection that is refused."""
ARRIVED = "longshore.arrived"
"""Key in the scope of a request that its endpoint answers without all of its body: it counts as arrived whole."""


class ConnectionStage(IntEnum):
    """How far a connection has come with its request; the lowest gives way first."""

    NEW = 0
    """No whole head of a request has arrived yet."""
    IDLE = 1
    """A request was answered, and no other has arrived."""
    RECEIVING = 2
    """The head of a request has arrived, and not all of its body."""
    SERVED = 3
    """A request is being answered that has arrived whole or whose answer has begun, or its client has not read all."""


class OpenConnection(Protocol):
    """One connection of a server."""

    @property
    def stage(self) -> ConnectionStage:
        """How far it is."""
        ...

    def give_way(self) -> None:
        """Close it at once."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server's connections."""

    all_clients: int = 8192
    """Most connections."""
    client: int = 2048
    """Most connections of one client."""
    head_s: float = 30.0
    """Seconds from a connection, or from the last answer, to the whole head of a request, and those in which a client
    reads something of what was sent to it."""


class OpenConnections:
    """The connections of a server."""

    def __init__(self, limits: ConnectionLimits = ConnectionLimits()) -> None:
        self.limits = limits
        self._clients: dict[OpenConnection, str] = {}
        """The client of each connection, oldest first."""
        self._by_client = Counter[str]()
        self.displaced = self.refused = 0

    def __len__(self) -> int:
        return len(self._clients)

    def admit(
        self,
        connection: OpenConnection,
        transport: asyncio.Transport,
        deadlines: ConnectionDeadlines,
        client: str | None = None,
    ) -> None:
        """Add a connection that has just been made, and wait for its request, or answer that there is no room for it.

        It is one of ``client``, by default of the address that it comes from."""
        if self.add(connection, _client_of(transport) if client is None else client):
            deadlines.await_request()
        else:
            transport.write(_REFUSAL)
            transport.close()

    def add(self, connection: OpenConnection, client: str) -> bool:
        """Add a connection of ``client``, and close older ones where there are too many.  Return False if it is
        refused."""
        full = self._by_client[client] >= self.limits.client and not self._make_room({client})
        if full or (len(self) >= self.limits.all_clients and not self._make_room(self._by_client.keys())):
            self.refused += 1
            return False
        self._clients[connection] = client
        self._by_client[client] += 1
        return True

    def remove(self, connection: OpenConnection) -> None:
        """Forget a connection that has ended; one that was refused or gave way is forgotten already."""
        if (client := self._clients.pop(connection, None)) is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _make_room(self, among: Collection[str]) -> bool:
        """Close connections that wait of that client of ``among`` which has most.  Return False if none waits."""
        waiting = [
            each for each, client in self._clients.items() if client in among and each.stage < ConnectionStage.SERVED
        ]
        if not waiting:
            return False
        greediest = max({self._clients[each] for each in waiting}, key=self._by_client.__getitem__)
        waiting = [each for each in waiting if self._clients[each] == greediest]
        waiting.sort(key=lambda each: each.stage)
        for each in waiting[: len(waiting) // _PART + 1]:
            self.remove(each)
            self.displaced += 1
            each.give_way()
        return True


class ConnectionDeadlines:
    """Closes a connection whose client sends no request that is awaited, or reads nothing of what was sent to it, for a
    time.  An answer that has nothing to send may take as long as it likes.

    The connection's protocol passes on the calls that pause and resume its writing, which come as soon as its client
    has not read all, and when it has.
    """

    def __init__(self, limit_s: float, transport: asyncio.Transport) -> None:
        self._limit_s, self._transport = limit_s, transport
        self._request: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=0)

    def await_request(self) -> None:
        """Begin to wait for a request."""
        self.request_arrived()
        self._request = asyncio.get_running_loop().call_later(self._limit_s, self._end_silence)

    def request_arrived(self) -> None:
        """Wait for no request."""
        if self._request is not None:
            self._request.cancel()

    def pause_writing(self) -> None:
        """Begin to wait until the client has read all."""
        self.resume_writing()
        unread = self._transport.get_write_buffer_size()
        self._reading = asyncio.get_running_loop().call_later(self._limit_s, self._look_at_reading, unread)

    def resume_writing(self) -> None:
        """Wait for no reading."""
        if self._reading is not None:
            self._reading.cancel()

    def stop(self) -> None:
        """Wait for nothing."""
        self.request_arrived()
        self.resume_writing()

    def _end_silence(self) -> None:
        if self._transport.get_write_buffer_size():  # it still reads the last answer
            self.await_request()
        else:
            self._transport.abort()

    def _look_at_reading(self, unread: int) -> None:
        if self._transport.get_write_buffer_size() < unread:
            self.pause_writing()
        else:
            self._transport.abort()


def _client_of(transport: asyncio.BaseTransport) -> str:
    """Return the client of a connection by its address; empty for a Unix socket."""
    peer: tuple[str, int] | str | None = transport.get_extra_info("peername")
    return client_at(peer[0]) if isinstance(peer, tuple) else ""


def client_at(host: str) -> str:
    """Return the client at an address: of IPv6 its network of 64 bits, all of which one machine may have."""
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))
