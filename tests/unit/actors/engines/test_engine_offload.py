"""If these fail, learner and server take the same memory at once, or a server keeps old weights and nobody knows.

Here a lease has expired, and the learner asks for the memory again while the server comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineState
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.weights.loader import FileWeightLoader, StagedWeights
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import engine_spec


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", f"{version}", 0, 0)


class OffloadedServer:
    """A fake, and its own client: takes its memory back once it may, and holds what it is told to load."""

    def __init__(self) -> None:
        self.client, self.pid, self.port = self, 2, 3
        self.held_version, self.offloads = 1, False
        self.wants_back, self.may = asyncio.Event(), asyncio.Event()
        self.empty = False
        """It gave its memory away, and nothing was loaded since."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def release_memory(self, drain_s: float) -> None:
        self.offloads = self.empty = True

    async def resume_memory(self) -> None:
        self.wants_back.set()
        await self.may.wait()
        self.offloads = False

    async def update_weights(self, path: str, version: int) -> int:
        self.held_version, self.empty = version, False
        return version

    async def update_weights_and_checksum(self, path: str, version: int) -> str:
        """The checksum is taken before the load, as may happen."""
        checksum = "sum of nothing" if self.empty else f"sum of {self.held_version}"
        await self.update_weights(path, version)
        return checksum

    async def read_checksum_of(self, version: int) -> str:
        assert version == self.held_version
        return f"sum of {version}"


class UncheckedLoader(FileWeightLoader):
    """Fake: every folder is there, and whole."""

    async def stage_weights(self, manifest: WeightManifest, model: object) -> StagedWeights:
        async def load(client: Any) -> str:
            return await client.update_weights_and_checksum(manifest.path, manifest.version)

        return StagedWeights(manifest, load)


@asynccontextmanager
async def coming_back(run_dir: Path) -> AsyncIterator[tuple[SGLangEngine, OffloadedServer]]:
    """An engine that serves version 1, and whose lease has ended."""
    engine, server = SGLangEngine(engine_spec(run_dir)), OffloadedServer()
    slot, weights = engine.slot, engine.weights
    failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    confirmed = ConfirmedWeights(manifest(1), "sum of 1")
    slot.serving = ActiveServer(
        cast("Any", server), confirmed, slot.queue.dispatch_open, failure, slot.queue.note_weight_change
    )
    weights.loader, weights.model = UncheckedLoader(), cast("Any", object())
    slot.state = EngineState.SERVING
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        slot.group = group
        await engine.offload_memory(0.0, 60.0)
        await server.wants_back.wait()
        yield engine, server


async def test_an_offload_requested_while_the_server_comes_back_is_done_afterwards(tmp_path: Path) -> None:
    async with coming_back(tmp_path) as (engine, server), asyncio.TaskGroup() as group:
        offloading = group.create_task(engine.offload_memory(60.0, 60.0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not offloading.done()
        server.may.set()
        await offloading
        assert server.offloads
        report = await engine.load_weights(manifest(2), 60.0)
        assert (report.version, server.held_version) == (2, 2)


async def test_weights_that_arrive_while_a_server_resumes_on_old_ones_are_loaded(tmp_path: Path) -> None:
    async with coming_back(tmp_path) as (engine, server), asyncio.TaskGroup() as group:
        loading = group.create_task(engine.load_weights(manifest(2), 60.0))
        for _ in range(10):
            await asyncio.sleep(0)
        server.may.set()
        report = await loading
        assert (report.version, server.held_version) == (2, 2)
        assert (await engine.status()).version == 2


async def test_weights_loaded_after_an_offload_are_verified_after_the_load(tmp_path: Path) -> None:
    """The engine's memory held neither the old weights nor the new ones before."""
    async with coming_back(tmp_path) as (engine, server):
        server.may.set()
        await engine.load_weights(manifest(2), 60.0)
        serving = engine.slot.serving
        assert serving is not None
        assert serving.confirmed == ConfirmedWeights(manifest(2), "sum of 2")
