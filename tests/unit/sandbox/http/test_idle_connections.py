"""If these fail, a request is lost now and then: it was sent on a connection that its server was just closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp.connector
import pytest
from starlette.applications import Starlette

from actors.chat_api.client import ChatApiClient
from protocol.idle_connections import FOREIGN_IDLE_S, OWN_IDLE_S
from sandbox.http.connections import ConnectionLimits, OpenConnections
from sandbox.http.json_client import JsonHttpClient
from sandbox.http.uvicorn_connections import server_config

UVICORN_KEEPS_S = 5
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n" + b'{"ok":true}'


class CountingServer:
    """A server that keeps every connection, and counts them."""

    url = ""
    connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(2 if b"POST" in head else 0)
            writer.write(ANSWER)


@asynccontextmanager
async def serving() -> AsyncGenerator[CountingServer]:
    server = CountingServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with asyncio.timeout(60), listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the clients' connectors read."""
    now = [1000.0]
    monkeypatch.setattr(aiohttp.connector, "monotonic", lambda: now[0])
    return now


def test_our_servers_keep_an_idle_connection_longer_than_our_clients() -> None:
    limits = ConnectionLimits()
    assert limits.head_s >= 2 * OWN_IDLE_S
    assert server_config(Starlette(), OpenConnections(limits)).timeout_keep_alive > limits.head_s


def test_others_servers_do_too() -> None:
    assert FOREIGN_IDLE_S < UVICORN_KEEPS_S


async def test_a_client_of_our_servers_leaves_a_connection_that_was_idle_for_long(clock: list[float]) -> None:
    async with serving() as server, JsonHttpClient(server.url) as client:
        for idle_s, connections in [(0.0, 1), (OWN_IDLE_S - 1, 1), (OWN_IDLE_S + 1, 2)]:
            clock[0] += idle_s
            await client.post("/", {})
            assert server.connections == connections


async def test_a_client_of_others_servers_does_so_sooner(clock: list[float]) -> None:
    async with serving() as server, ChatApiClient(server.url) as client:
        for idle_s, connections in [(0.0, 1), (FOREIGN_IDLE_S - 1, 1), (FOREIGN_IDLE_S + 1, 2)]:
            clock[0] += idle_s
            await client.list_models()
            assert server.connections == connections
