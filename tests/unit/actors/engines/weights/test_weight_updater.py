"""The exchange of a server's weights: it goes on only with weights that it was seen to hold after the load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from actors.engines.messages import WeightLoadError
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import SGLangServer
from actors.engines.server_slot import ServerSlot
from actors.engines.weights.loader import FileWeightLoader, stage_checked_files
from actors.engines.weights.updater import WeightUpdater
from protocol.weights import WeightManifest, WeightVersion
from tests.support.actors.engine_specs import engine_spec
from tests.support.network.aiohttp_servers import serve_on_loopback

OLD, NEW = WeightVersion(1), WeightVersion(2)


@dataclass
class FakeSGLangServer:
    """Does one thing after the other, as a server's scheduler does."""

    looks_first: bool = False
    """The first question for the checksum comes to it before the load."""
    says: int = NEW
    """The version that it says it serves after a load of the new one."""
    tells: bool = True
    """Says so in its reply to the load, as SGLang 0.5 does."""
    holds: int = OLD
    did: list[str] = field(default_factory=list[str])
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def load(self, request: web.Request) -> web.Response:
        version = int((await request.json())["weight_version"])
        if self.looks_first:
            await self.looked.wait()
        self.holds = version
        self.did.append(f"load {version}")
        self.loaded.set()
        suffix = f" Weight version updated to {self.serves}." if self.tells else ""
        return web.json_response({"success": True, "message": f"Succeeded to update model weights.{suffix}"})

    async def checksum(self, _request: web.Request) -> web.Response:
        if not self.looks_first or self.looked.is_set():
            await self.loaded.wait()
        self.looked.set()
        self.did.append(f"look {self.holds}")
        return web.json_response({"success": True, "per_engine_checksum": f"sum-{self.holds}"})

    async def info(self, _request: web.Request) -> web.Response:
        self.did.append("version")
        return web.json_response({"weight_version": str(self.serves)})

    @property
    def serves(self) -> int:
        return self.says if self.holds == NEW else self.holds

    async def pause(self, _request: web.Request) -> web.Response:
        self.did.append("pause")
        return web.json_response({})

    async def go_on(self, _request: web.Request) -> web.Response:
        self.did.append("go on")
        return web.json_response({})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/update_weights_from_disk", self.load)
        app.router.add_post("/weights_checker", self.checksum)
        app.router.add_get("/model_info", self.info)
        app.router.add_post("/pause_generation", self.pause)
        app.router.add_post("/continue_generation", self.go_on)
        return app


@dataclass
class ServerWithClient:
    client: SGLangClient


@asynccontextmanager
async def _serving(scheduler: FakeSGLangServer) -> AsyncGenerator[ActiveServer]:
    server = serve_on_loopback(scheduler.app(), shutdown_timeout_s=0)
    async with server as port, SGLangClient(port, "key") as client:
        yield ActiveServer(
            cast("SGLangServer", ServerWithClient(client)),
            ConfirmedWeights(_manifest(OLD), "sum-1"),
            asyncio.Event(),
            asyncio.get_running_loop().create_future(),
            lambda _version: None,
        )


def _manifest(version: WeightVersion) -> WeightManifest:
    return WeightManifest(
        version,
        step=version,
        parent=version,
        path=f"/weights/{version}",
        sha256=f"digest-{version}",
        tensors=1,
        bytes=2,
    )


async def _exchange(serving: ActiveServer) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    weights = WeightUpdater(ServerSlot(engine_spec(Path("/run"), dtype="bfloat16")), FileWeightLoader())
    await weights.swap(serving, stage_checked_files(_manifest(NEW)), deadline)


async def test_the_servers_checksum_is_read_once_after_the_load() -> None:
    scheduler = FakeSGLangServer()
    async with _serving(scheduler) as serving:
        await _exchange(serving)
    assert scheduler.did == ["pause", "load 2", "look 2", "go on"]
    assert serving.confirmed == ConfirmedWeights(_manifest(NEW), "sum-2")


async def test_a_version_missing_from_the_load_reply_is_requested() -> None:
    scheduler = FakeSGLangServer(tells=False)
    async with _serving(scheduler) as serving:
        await _exchange(serving)
    assert sorted(scheduler.did[2:-1]) == ["look 2", "version"]
    assert serving.confirmed == ConfirmedWeights(_manifest(NEW), "sum-2")


async def test_a_checksum_read_before_the_load_finished_is_read_again() -> None:
    scheduler = FakeSGLangServer(looks_first=True)
    async with _serving(scheduler) as serving:
        await _exchange(serving)
    assert scheduler.did[:3] == ["pause", "look 1", "load 2"]
    assert sorted(scheduler.did[3:]) == ["go on", "look 2", "version"]
    assert scheduler.did[-1] == "go on"
    assert serving.confirmed == ConfirmedWeights(_manifest(NEW), "sum-2")


@pytest.mark.parametrize("tells", [True, False])
async def test_a_server_that_serves_another_version_gets_its_old_weights_back(tells: bool) -> None:
    scheduler = FakeSGLangServer(says=7, tells=tells)
    async with _serving(scheduler) as serving:
        with pytest.raises(WeightLoadError, match=r"serves version 0\.7"):
            await _exchange(serving)
    assert [each for each in scheduler.did if each != "version"] == [
        *("pause", "load 2", "look 2", "load 1", "look 1", "go on")
    ]
    assert serving.confirmed == ConfirmedWeights(_manifest(OLD), "sum-1")
    assert not serving.failure.done()
