"""Bodies that cost a server far more than their bytes: compressed ones.

If this fails, one client of a gateway or an API relay stops its worker for all others, some of them without a key."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import cast
from unittest.mock import AsyncMock, Mock

import aiohttp
import pytest
from aiohttp.compression_utils import ZLibDecompressor

from launch.evaluation.solvers import api_relay as api_relay_module
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySettings
from sandbox.session.sandbox_session import SandboxSession
from tests.support.actors.gateways import open_gateway

COMPRESSED = gzip.compress(bytes(64 << 20))


class FakeRelaySandbox:
    engine = container = None


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
            async with relay.listen_in_sandbox(cast("SandboxSession", FakeRelaySandbox()), 1, session) as key:
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
    async with run_server(monkeypatch) as server, aiohttp.ClientSession() as harness, asyncio.timeout(60):
        key = server.key if with_key else "another"
        headers = {"Authorization": f"Bearer {key}", "Content-Encoding": "gzip"}
        async with harness.post(f"{server.url}/chat/completions", data=COMPRESSED, headers=headers) as answer:
            assert answer.status == (415 if with_key else 401)
            assert "error" in await answer.json()
        await harness.get(f"{server.url}/models", headers={"Authorization": f"Bearer {key}"})
    assert sum(unpacked) == 0
