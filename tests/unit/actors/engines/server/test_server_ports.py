"""If these fail, an engine whose port another program took first waits for its server's whole time, for nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiohttp import web

from actors.engines.messages import EngineStartError, ServerPortTaken
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import SGLangServer
from tests.support.network.aiohttp_servers import serve_on_loopback


async def test_a_server_that_rejects_our_key_means_that_the_port_is_taken() -> None:
    async def refuse(_asked: web.Request) -> web.Response:
        return web.json_response({"error": "Unauthorized"}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{path}", refuse)
    async with serve_on_loopback(app) as port, SGLangClient(port, "key") as client:
        with pytest.raises(ServerPortTaken, match="401"):
            await client.read_version()


@pytest.mark.parametrize("taken", [2, 3])
async def test_a_taken_port_is_replaced_at_most_twice(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    server = cast("SGLangServer", object())

    async def launch(settings: Any, manifest: Any) -> SGLangServer:
        tries.append(len(tries))
        if len(tries) <= taken:
            raise ServerPortTaken("/generate: 401")
        return server

    monkeypatch.setattr(SGLangServer, "launch_once", launch)
    if taken < 3:
        assert await SGLangServer.launch(cast("Any", None), cast("Any", None)) is server
    else:
        with pytest.raises(EngineStartError, match="other programs took 3 ports"):
            await SGLangServer.launch(cast("Any", None), cast("Any", None))
    assert len(tries) == 3
