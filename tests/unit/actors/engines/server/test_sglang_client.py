"""The client of a server that hangs: if it waited with it, its requests would never be sent again."""

import asyncio

import pytest
from aiohttp import web

from actors.engines.messages import ServerLost
from actors.engines.server.client import SamplingOptions, SGLangClient
from actors.engines.server.reply_stream import ReplyStream
from tests.support.actors.engine_requests import make_chunk
from tests.support.network.aiohttp_servers import serve_on_loopback

OPTIONS = SamplingOptions(max_new_tokens=1, temperature=1.0, stop_token_ids=(), greedy=True)


async def test_closing_a_client_ends_the_wait_for_a_started_reply() -> None:
    over = asyncio.Event()

    async def begin(pending: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(pending)
        await response.write(b"data:" + make_chunk([7], ends=False) + b"\n")
        await over.wait()
        return response

    app = web.Application()
    app.router.add_post("/generate", begin)
    async with serve_on_loopback(app, shutdown_timeout_s=0) as port:
        try:
            async with SGLangClient(port, "key") as client, asyncio.TaskGroup() as group:
                begun = asyncio.Event()
                pending = group.create_task(_lost(client, ReplyStream(2, 1, on_tokens=begun.set)))
                await begun.wait()
                await client.close()
            assert pending.result()
        finally:
            over.set()


async def _lost(client: SGLangClient, stream: ReplyStream) -> bool:
    with pytest.raises(ServerLost, match="/generate"):
        await client.generate("r", [1], OPTIONS, "v1", stream)
    return True
