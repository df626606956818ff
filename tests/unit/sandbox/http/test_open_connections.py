"""Which connections a server keeps.  If this fails, one client shuts others out, or a request that is served is cut."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from sandbox.http.connections import (
    ConnectionDeadlines,
    ConnectionLimits,
    ConnectionStage,
    OpenConnections,
    client_at,
)


@dataclass(eq=False)
class FakeConnection:
    stage: ConnectionStage = ConnectionStage.NEW
    closed: bool = False

    def give_way(self) -> None:
        self.closed = True


def opened(room: OpenConnections, client: str, *stages: ConnectionStage) -> list[FakeConnection]:
    connections = [FakeConnection(stage) for stage in stages]
    assert all(room.add(each, client) for each in connections)
    return connections


NEW, IDLE, RECEIVING, SERVED = ConnectionStage


def test_who_has_sent_nothing_gives_way_first_then_the_idle_then_half_requests() -> None:
    room = OpenConnections(ConnectionLimits(4, 4))
    served, half, idle, new = opened(room, "a", SERVED, RECEIVING, IDLE, NEW)
    for first in (new, idle, half):
        [another] = opened(room, "b", SERVED)
        assert first.closed
    assert not served.closed
    assert (len(room), room.displaced) == (4, 3)
    assert not room.add(FakeConnection(), "b"), "all are being served"
    room.remove(another)
    assert room.add(FakeConnection(), "b")
    assert room.refused == 1


def test_a_client_at_its_bound_displaces_its_own() -> None:
    room = OpenConnections(ConnectionLimits(8, 2))
    [others] = opened(room, "a", NEW)
    first, second = opened(room, "b", NEW, NEW)
    opened(room, "b", NEW)
    assert (others.closed, first.closed, second.closed) == (False, True, False)
    opened(room, "c", SERVED, SERVED)
    assert not room.add(FakeConnection(), "c")
    assert room.add(FakeConnection(), "d")


def test_a_flood_keeps_to_the_bound_and_never_closes_what_is_served() -> None:
    room = OpenConnections(ConnectionLimits(100, 80))
    served = opened(room, "a", *[SERVED] * 20)
    opened(room, "b", *[NEW] * 5000)
    assert len(room) <= 100
    assert not any(each.closed for each in served)
    opened(room, "a", *[SERVED] * 20)


def test_half_requests_of_some_close_nothing_of_a_client_that_has_few() -> None:
    room = OpenConnections(ConnectionLimits(500, 200))
    idle = opened(room, "worker", *[IDLE] * 100)
    half = [*opened(room, "a", *[RECEIVING] * 200), *opened(room, "b", *[RECEIVING] * 200)]
    opened(room, "another", *[NEW] * 50)
    assert not any(each.closed for each in idle)
    assert sum(each.closed for each in half) >= 50


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_a_client_of_ipv6_is_its_network(one: str, other: str, same: bool) -> None:
    assert (client_at(one) == client_at(other)) == same


class FakeTransport(asyncio.Transport):
    """Has a client that reads a byte between two looks until ``keeps`` are left."""

    def __init__(self, unread: int, keeps: int) -> None:
        self.unread, self.keeps, self.aborted = unread, keeps, asyncio.Event()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, None)

    def get_write_buffer_size(self) -> int:
        self.unread = max(self.keeps, self.unread - 1)
        return self.unread

    def abort(self) -> None:
        self.aborted.set()


async def test_a_client_is_cut_only_once_it_reads_nothing_more() -> None:
    transport = FakeTransport(20, 5)
    deadlines = ConnectionDeadlines(0.001, transport)
    deadlines.await_request()
    deadlines.pause_writing()
    async with asyncio.timeout(30.0):
        await transport.aborted.wait()
    assert transport.unread == 5
    deadlines.stop()
