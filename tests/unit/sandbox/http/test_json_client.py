"""If this fails, a session is lost although its server answers the next request."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from sandbox.http.json_client import JsonHttpClient

UNREACHABLE_S = 0.2
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'


@pytest.mark.parametrize("answers", [True, False])
async def test_a_request_whose_connection_breaks_late_is_repeated(answers: bool) -> None:
    """The time of retries begins when the server is lost, not when the request began."""
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await reader.readuntil(b"\r\n\r\n")
        if requests == 1:
            await asyncio.sleep(2 * UNREACHABLE_S)
        elif answers:
            writer.write(ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(60), server, JsonHttpClient(url, unreachable_s=UNREACHABLE_S) as client:
        if answers:
            assert await client.post_with_retries("/", {}) == {"ok": True}
        else:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await client.post_with_retries("/", {})
    assert requests > 1
