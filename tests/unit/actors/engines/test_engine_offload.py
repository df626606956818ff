"""If these fail, learner and server take the same memory at once, or a server keeps old weights and nobody knows.

Both when the learner's turn has ended by itself, and whoever did not renew its lease asks again while the server comes
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from actors.engines.engine import Engine
from actors.engines.messages import EnginePids, EngineState
from actors.engines.server.client import ServerWeights
from actors.engines.settings import EngineSettings
from actors.engines.weights.loader import FileWeightLoader
from actors.engines.weights.swap import ActiveServer, ConfirmedWeights
from actors.engines.weights.updater import InPlaceUpdater
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", f"{version}", 0, 0)


class FakeServer:
    """A fake, and its own client: takes its memory back once it may, and holds what it is told to load."""

    def __init__(self) -> None:
        self.client, self.pids, self.port = self, EnginePids(1, 2), 3
        self.held_version, self.lends = 1, False
        self.wants_back, self.may = asyncio.Event(), asyncio.Event()
        self.empty = False
        """It gave its memory away, and nothing was loaded since."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def release_memory(self, drain_s: float) -> None:
        self.lends = self.empty = True

    async def resume_memory(self) -> None:
        self.wants_back.set()
        await self.may.wait()
        self.lends = False

    async def update_weights(self, path: str, version: int) -> int:
        self.held_version, self.empty = version, False
        return version

    async def update_weights_and_checksum(self, path: str, version: int) -> ServerWeights:
        """The look comes before the load, as it may."""
        looked = "sum of nothing" if self.empty else f"sum of {self.held_version}"
        return ServerWeights(await self.update_weights(path, version), looked)

    async def read_server_weights(self) -> ServerWeights:
        return ServerWeights(self.held_version, f"sum of {self.held_version}")


class Readable(FileWeightLoader):
    """Fake: every folder is there, and whole."""

    async def stage_weights(self, manifest: WeightManifest, model: object) -> Any:
        async def load(client: FakeServer) -> ServerWeights:
            return await client.update_weights_and_checksum(manifest.path, manifest.version)

        return load


@asynccontextmanager
async def coming_back(run_dir: Path) -> AsyncIterator[tuple[Engine, FakeServer]]:
    """An engine that serves version 1, and whose lease has ended."""
    settings = EngineSettings(name="e", run_dir=run_dir, model_path="", context_length=512, max_running=2, device="cpu")
    engine, server = Engine(settings), FakeServer()
    trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    confirmed, gate = ConfirmedWeights(manifest(1), "sum of 1"), asyncio.Event()
    engine._serving = ActiveServer(cast("Any", server), confirmed, gate, trouble, lambda version: None)
    engine._updates, engine._model = InPlaceUpdater(Readable(), grace_s=60.0, item_bytes=4), cast("Any", object())
    engine._state = EngineState.SERVING
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        engine._group = group
        await engine.offload_memory(0.0, 60.0)
        await server.wants_back.wait()
        yield engine, server


async def test_who_asks_again_while_a_server_comes_back_is_lent_the_device_anew(tmp_path: Path) -> None:
    async with coming_back(tmp_path) as (engine, server), asyncio.TaskGroup() as group:
        lending = group.create_task(engine.offload_memory(60.0, 60.0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not lending.done()
        server.may.set()
        await lending
        assert server.lends
        report = await engine.load_weights(manifest(2), 60.0)
        assert (report.version, server.held_version) == (2, 2)


async def test_weights_that_come_while_a_server_comes_back_on_the_old_ones_are_loaded(tmp_path: Path) -> None:
    async with coming_back(tmp_path) as (engine, server), asyncio.TaskGroup() as group:
        loading = group.create_task(engine.load_weights(manifest(2), 60.0))
        for _ in range(10):
            await asyncio.sleep(0)
        server.may.set()
        report = await loading
        assert (report.version, server.held_version) == (2, 2)
        assert (await engine.status()).version == 2


async def test_weights_that_come_back_with_the_memory_are_looked_at_after_their_load(tmp_path: Path) -> None:
    """What it held before was neither the old ones nor the new ones."""
    async with coming_back(tmp_path) as (engine, server):
        server.may.set()
        await engine.load_weights(manifest(2), 60.0)
        serving = engine._serving
        assert serving is not None
        assert serving.confirmed == ConfirmedWeights(manifest(2), "sum of 2")
