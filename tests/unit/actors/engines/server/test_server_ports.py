"""If these fail, an engine whose port another program took first waits for its server's whole time, for nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiohttp import web

from actors.engines.messages import EngineStartError, ServerPortTaken
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import SGLangServer


async def test_a_server_that_does_not_know_our_key_is_not_ours() -> None:
    async def refuse(_asked: web.Request) -> web.Response:
        return web.json_response({"error": "Unauthorized"}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{path}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with SGLangClient(runner.addresses[0][1], "key") as client:
            with pytest.raises(ServerPortTaken, match="401"):
                await client.read_version()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("taken", [2, 3])
async def test_another_port_is_tried_then(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
