"""If this fails, one sandbox that sends its body in chunks of a byte stops the requests of all others for seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandbox.egress_proxy.connection import ProxyAccess, serve_connection
from sandbox.egress_proxy.file_cache import FileCache
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import UpstreamClient

HEAD = b"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = 10_000


async def test_others_have_their_turn_while_tiny_chunks_are_parsed(tmp_path: Path) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    access = ProxyAccess(AllowList(()), "http://proxy", lambda _: None)
    async with UpstreamClient(FileCache(tmp_path, 1 << 20)) as upstream:
        server = await asyncio.start_server(
            lambda reader, writer: serve_connection(reader, writer, access, upstream), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(HEAD + b"1\r\na\r\n" * CHUNKS + b"0\r\n\r\n")
            counting = asyncio.ensure_future(count_turns())
            assert b"403" in await reader.readline()
            counting.cancel()
            writer.close()
    assert turns > CHUNKS // 100
