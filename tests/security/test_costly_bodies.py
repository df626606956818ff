"""Bodies that cost a server far more than their bytes: compressed ones, and those in tiny chunks.

If this fails, one client of a server stops it for all others, without a key."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, Mock

import aiohttp
import h11
import pytest
from aiohttp import web
from aiohttp.compression_utils import ZLibDecompressor
from aiohttp.web_protocol import RequestHandler

from launch.evaluation.solvers import api_relay as api_relay_module
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySettings
from sandbox.http.aiohttp_connections import LimitedSite, application_runner
from sandbox.http.application import create_application
from sandbox.http.auth import Access
from sandbox.http.connections import OpenConnections
from sandbox.http.endpoints import HttpCall, HttpEndpoint
from sandbox.http.messages import HttpReply, LeaseRequest, OkReply
from sandbox.http.serving import bind_listener
from sandbox.session.sandbox_session import SandboxSession
from tests.support.actors.gateways import open_gateway
from tests.support.network.http_servers import serving

SOON_S = 60.0
COMPRESSED = gzip.compress(bytes(64 << 20))


@dataclass(frozen=True)
class HarnessServer:
    """A server of harnesses: its base URL, and the key of an open session."""

    url: str
    key: str


@asynccontextmanager
async def gateway(_: pytest.MonkeyPatch) -> AsyncGenerator[HarnessServer]:
    async with open_gateway("hello") as clients:
        yield HarnessServer(f"{clients.gateway.url}/v1", clients.gateway.api_key(clients.session))


@asynccontextmanager
async def api_relay(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[HarnessServer]:
    listening = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(api_relay_module, "listen_in_container", AsyncMock(return_value=listening))
    settings = RelaySettings(url="http://127.0.0.1:1", model="", key="", temperature=1.0, max_replies=9, deadline_s=9.0)
    async with ApiRelay(settings) as relay:
        with relay.open_session("attempt", 0, Mock()) as session:
            async with relay.listen_in_sandbox(
                cast("SandboxSession", SimpleNamespace(engine=None, container=None)), 1, session
            ) as key:
                yield HarnessServer(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", key)


@pytest.mark.parametrize("with_key", [True, False], ids=["with the key", "with another key"])
@pytest.mark.parametrize("run_server", [gateway, api_relay])
async def test_a_compressed_body_is_refused_and_never_unpacked(
    run_server: Callable[[pytest.MonkeyPatch], AbstractAsyncContextManager[HarnessServer]],
    with_key: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpacked: list[int] = []
    unpack = ZLibDecompressor.decompress_sync

    def count(self: ZLibDecompressor, data: bytes, max_length: int = 0) -> bytes:
        piece = unpack(self, data, max_length)
        unpacked.append(len(piece))
        return piece

    monkeypatch.setattr(ZLibDecompressor, "decompress_sync", count)
    async with run_server(monkeypatch) as server, aiohttp.ClientSession() as harness, asyncio.timeout(SOON_S):
        key = server.key if with_key else "another"
        headers = {"Authorization": f"Bearer {key}", "Content-Encoding": "gzip"}
        async with harness.post(f"{server.url}/chat/completions", data=COMPRESSED, headers=headers) as answer:
            assert answer.status == (415 if with_key else 401)
            assert "error" in await answer.json()
        await harness.get(f"{server.url}/models", headers={"Authorization": f"Bearer {key}"})
    assert sum(unpacked) == 0


class Rounds:
    """Counts by the round of the event loop in which it happens."""

    def __init__(self) -> None:
        self.counted = Counter[int]()
        self._number, self._loop = 0, asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self._number += 1
        self._handle = self._loop.call_soon(self._next)

    def add(self, count: int) -> None:
        self.counted[self._number] += count

    def stop(self) -> None:
        self._handle.cancel()


@asynccontextmanager
async def sandbox_server(token: str = "") -> AsyncGenerator[tuple[int, list[str]]]:
    """A server that is built and run as pool servers, routers and environment services are, and the leases that were
    sent to it."""
    leases: list[str] = []

    async def lease(call: HttpCall[LeaseRequest]) -> HttpReply:
        leases.append(call.body.lease_id)
        return HttpReply(200, OkReply())

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        yield

    table = [HttpEndpoint("/lease", "", LeaseRequest, OkReply, lease)]
    async with serving(create_application("x", table, running, lambda: b"", Access("127.0.0.1", token))) as url:
        yield int(url.rpartition(":")[2]), leases


HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = b"1\r\n \r\n" * 2_000
END = b"0\r\n\r\n"


def chunked(text: bytes, size: int = 1) -> bytes:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + END


async def statuses(port: int, sent: bytes, count: int) -> list[int]:
    """Send all of it, and return the statuses of so many answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found: list[int] = []
    try:
        async with asyncio.timeout(SOON_S):
            writer.write(sent)
            while len(found) < count:
                line = await reader.readline()
                assert line, "it was closed"
                if b"HTTP/1.1 " in line:  # behind the body of the last answer, which ends without a new line
                    found.append(int(line.partition(b"HTTP/1.1 ")[2].split()[0]))
            await writer.drain()
    finally:
        writer.close()
    return found


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [("", b"/lease", 200), ("", b"/nowhere", 404), ("x" * 20, b"/lease", 401)],
    ids=["read", "to nowhere", "without the token"],
)
async def test_a_server_of_sandboxes_parses_few_chunks_before_others_have_their_turn(
    token: str, path: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, parse = Rounds(), h11.Connection.next_event

    def count(self: h11.Connection) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        rounds.add(1)
        return parse(self)

    monkeypatch.setattr(h11.Connection, "next_event", count)
    sent = HEAD % path + TINY + chunked(b'{"lease_id": "a"}')
    async with sandbox_server(token) as (port, leases):
        assert await statuses(port, sent + sent, 2) == [status] * 2, "the second after the whole body of the first"
    rounds.stop()
    assert leases == ["a"] * 2 * (status == 200)
    assert rounds.counted.total() > 2_000
    assert max(rounds.counted.values()) <= 130, "at most two turns: the last of a body and the first of the next"


async def test_a_server_of_sandboxes_reads_nothing_while_what_it_read_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[int] = []
    receive = h11.Connection.receive_data

    def count(self: h11.Connection, data: bytes) -> None:
        receive(self, data)
        waiting.append(len(self.trailing_data[0]))

    monkeypatch.setattr(h11.Connection, "receive_data", count)
    body = b'{"lease_id": "a", "more": "%s"}' % (b"x" * (1 << 20))
    requests = 4
    async with sandbox_server() as (port, leases):
        sent = HEAD % b"/lease" + chunked(body, 600)
        assert await statuses(port, sent * requests, requests) == [200] * requests
    assert leases == ["a"] * requests
    assert max(waiting) <= 2 * (256 << 10), "one read, and at most one before it"


@pytest.mark.parametrize("path", [b"/read", b"/refused"])
async def test_a_server_of_harnesses_parses_few_bytes_before_others_have_their_turn(
    path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, parse = list[int](), RequestHandler.data_received

    def count(self: RequestHandler, data: bytes) -> None:
        read.append(len(data))
        parse(self, data)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=403) if request.path == "/refused" else web.Response(body=await request.read())

    monkeypatch.setattr(RequestHandler, "data_received", count)
    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = application_runner(app)
    await runner.setup()
    with bind_listener("127.0.0.1", 0) as listener:
        await LimitedSite(runner, listener, OpenConnections()).start()
        sent = HEAD % path + TINY + END
        expected = [403 if path == b"/refused" else 200] * 2
        assert await statuses(listener.getsockname()[1], sent * 2, 2) == expected
        await runner.cleanup()
    assert sum(read) == 2 * len(sent)
    assert max(read) <= 4 << 10
