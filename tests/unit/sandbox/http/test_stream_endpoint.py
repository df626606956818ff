"""If these fail, a connection that broke looks as if it had ended, a defect leaves no trace, another site reaches a
sandbox, or a server at its bound closes the requests that wait for an agent's next connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import pytest
from starlette.applications import Starlette

from sandbox.http.connections import ConnectionLimits, OpenConnections
from sandbox.http.json_client import JsonHttpClient
from sandbox.http.streams import StreamCall, StreamEndpoint
from tests.support.network.http_servers import serving


async def unended_body() -> AsyncGenerator[bytes]:
    await asyncio.Event().wait()
    yield b""


@asynccontextmanager
async def client_of(
    serve: Callable[[StreamCall], Awaitable[None]], connections: OpenConnections | None = None
) -> AsyncGenerator[JsonHttpClient]:
    """A client of a server whose one endpoint is ``serve``."""
    app = Starlette(routes=[StreamEndpoint(serve).route("/")])
    async with asyncio.timeout(30), serving(app, connections) as url, JsonHttpClient(url) as client:
        yield client


def opened(client: JsonHttpClient) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    return client.open_stream("/", unended_body(), 10.0)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_defect_is_logged_and_a_reply_that_it_cuts_has_no_end(
    begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(call: StreamCall) -> None:
        if begun:
            await call.begin()
            await call.write(b"half")
        raise RuntimeError("the defect itself")

    async with client_of(fail) as client, opened(client) as reply:
        assert reply.status == (200 if begun else 500)
        if begun:
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()
    assert "the defect itself" in caplog.text


async def test_a_web_page_of_another_site_carries_no_connection() -> None:
    async def serve(call: StreamCall) -> None:
        await call.begin()

    async with client_of(serve) as client, aiohttp.ClientSession() as page:
        for headers, status in (({}, 200), ({"origin": "http://page.example"}, 415)):
            async with page.post(f"{client.url}/", data="", headers={"content-type": "text/plain", **headers}) as reply:
                assert reply.status == status


async def test_a_request_that_waits_for_a_connection_does_not_give_way() -> None:
    waiting, may_begin = asyncio.Event(), asyncio.Event()
    connections = OpenConnections(ConnectionLimits(all_clients=1))

    async def serve(call: StreamCall) -> None:
        waiting.set()
        await may_begin.wait()
        await call.begin()

    async with client_of(serve, connections) as client:

        async def status() -> int:
            async with opened(client) as reply:
                return reply.status

        async with asyncio.TaskGroup() as group:
            first = group.create_task(status())
            await waiting.wait()
            assert await status() == 503
            may_begin.set()
        assert first.result() == 200
    assert (connections.displaced, connections.refused) == (0, 1)
