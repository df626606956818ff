"""If these fail, a sandbox that begins downloads and hardly reads them shuts all others out of an allowed host."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sandbox.egress_proxy import reading_allowance
from sandbox.egress_proxy.connection import ProxyAccess, serve_connection
from sandbox.egress_proxy.file_cache import FileCache
from sandbox.egress_proxy.reading_allowance import LEAST_BYTES_PER_S, MOST_S, ReadingAllowance
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import UpstreamClient

SOON_S = 60.0
DOWNLOADS = 64
"""As many as one sandbox may have at once."""
PIECE = b"x" * (64 << 10)


class Origin:
    """An allowed host: ``/small`` is two bytes, everything else has no end."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"/small" in head:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                self.begun.release()
                writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1000000000000\r\n\r\n")
                while True:
                    writer.write(PIECE)
                    await writer.drain()
        writer.close()


class Proxy:
    """The part of a machine's egress proxy that its sandboxes share."""

    def __init__(self, port: int, origin_port: int) -> None:
        self.port, self._origin_port = port, origin_port
        self._clients = list[asyncio.StreamWriter]()

    async def get(self, path: str) -> asyncio.StreamReader:
        """Request a file of the origin, as a client that buffers little."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4096)
        writer.write(f"GET http://127.0.0.1:{self._origin_port}/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self._clients.append(writer)
        return reader

    def close_clients(self) -> None:
        for each in self._clients:
            each.transport.abort()


@contextlib.asynccontextmanager
async def proxy_before(origin: Origin, folder: Path) -> AsyncGenerator[Proxy]:
    async with (
        asyncio.timeout(SOON_S),
        UpstreamClient(FileCache(folder, 1 << 20)) as upstream,
        await asyncio.start_server(origin.serve, "127.0.0.1", 0) as behind,
    ):
        origin_port = behind.sockets[0].getsockname()[1]
        host = (f"127.0.0.1:{origin_port}",)
        access = ProxyAccess(AllowList(host, host), "http://proxy", lambda _: None)
        async with await asyncio.start_server(
            lambda reader, writer: serve_connection(reader, writer, access, upstream), "127.0.0.1", 0
        ) as server:
            proxy = Proxy(server.sockets[0].getsockname()[1], origin_port)
            try:
                yield proxy
            finally:
                proxy.close_clients()


async def test_downloads_of_one_sandbox_do_not_keep_others_from_a_host(tmp_path: Path) -> None:
    origin = Origin()
    async with proxy_before(origin, tmp_path) as proxy:
        for each in range(DOWNLOADS):
            await proxy.get(f"endless/{each}")
        for _ in range(DOWNLOADS):
            await origin.begun.acquire()
        reader = await proxy.get("small")
        assert b"200" in await reader.readline()


async def test_a_client_that_reads_a_little_at_a_time_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_allowance, "MOST_S", 0.5)
    monkeypatch.setattr(reading_allowance, "LEAST_BYTES_PER_S", 1 << 40)
    async with proxy_before(Origin(), tmp_path) as proxy:
        reader = await proxy.get("endless")
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := await reader.read(len(PIECE)):
                received += len(piece)
                await asyncio.sleep(0.01)
    assert received


class SlowClient:
    """A client whose reads take time on a clock of the test."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.allowance = ReadingAllowance(lambda: self.time_s)

    async def read(self, sent_bytes: int, seconds: float) -> None:
        async def take_time() -> None:
            await asyncio.sleep(0)
            self.time_s += seconds

        await self.allowance.wait(take_time(), sent_bytes)


async def test_a_client_may_read_at_the_least_rate_for_ever_and_pause() -> None:
    client = SlowClient()
    for _ in range(1000):
        await client.read(LEAST_BYTES_PER_S * 10, 10)
    await client.read(1, MOST_S - 1)


async def test_reading_fast_earns_no_pause_beyond_the_longest() -> None:
    client = SlowClient()
    await client.read(LEAST_BYTES_PER_S * 1000, 0)
    await client.read(1, MOST_S)
    with pytest.raises(TimeoutError):
        await client.read(0, 1)
