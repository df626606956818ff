"""If these fail, an engine is restarted because it stood still for new weights, or is never restarted at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import EngineState, ServerLost
from actors.engines.routing.inflight_request import InflightRequest
from actors.engines.routing.prefix_cache import NO_PREFIX
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server_slot import ServerSlot
from actors.engines.supervisor import ServerSupervisor
from actors.engines.weights.loader import FileWeightLoader
from actors.engines.weights.updater import WeightUpdater
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_requests import make_chunk, make_request
from tests.support.actors.engine_specs import engine_spec

MANIFEST = WeightManifest(WeightVersion(1), 0, NO_VERSION, "/weights", "", 0, 0)
STALL_S = 0.02


class HangingServer:
    """A fake: probes hang until they are given up, as behind a pause, or until it answers."""

    def __init__(self) -> None:
        self.pid, self.port, self.fails, self.answers = 2, 3, False, asyncio.Event()
        self.probed, self.over = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def probe(self, rid: str, *, adapter: str = "") -> None:
        self.probed.release()
        if self.fails:
            raise ServerLost("refused")
        try:
            await self.answers.wait()
        finally:
            self.over.release()


class WatchedServer:
    """A slot with a fake server that is probed, and nothing else."""

    def __init__(self, run_dir: Path) -> None:
        self.slot = ServerSlot(engine_spec(run_dir, probe_every_s=0.0, stall_timeout_s=STALL_S))
        self.supervisor = ServerSupervisor(self.slot, WeightUpdater(self.slot, FileWeightLoader()))
        self.server, queue = HangingServer(), self.slot.queue
        failure = asyncio.get_running_loop().create_future()
        self.serving = ActiveServer(
            cast("Any", self.server),
            ConfirmedWeights(MANIFEST, "sum"),
            queue.dispatch_open,
            failure,
            lambda version: None,
        )
        self.slot.serving = self.serving
        self.slot.serve(self.serving)

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[None]:
        with self.slot.paused(self.serving):
            yield

    async def begin_to_fail(self) -> None:
        """Between two probes."""
        await self.server.probed.acquire()
        async with self.standing_still():
            await self.server.over.acquire()
            self.server.fails = True

    async def judged(self) -> None:
        """The probe that hangs has been given up, and a later one is answered."""
        await self.server.over.acquire()
        self.server.answers.set()
        await self.server.over.acquire()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[WatchedServer]:
    watched = WatchedServer(tmp_path)
    async with asyncio.TaskGroup() as group:
        probing = group.create_task(watched.supervisor.probe())
        yield watched
        probing.cancel()


async def test_a_server_that_lets_a_probe_hang_is_marked_failed(watched: WatchedServer) -> None:
    assert "silent" in await watched.serving.failure


async def test_a_server_that_sends_tokens_while_a_probe_waits_is_not_silent(watched: WatchedServer) -> None:
    """Its memory may be full of long replies, none of which has ended yet."""
    work = InflightRequest(make_request([1], 9), watched.slot.queue.note_activity)
    stream = work.begin_attempt(WeightVersion(1), NO_PREFIX)
    await watched.server.probed.acquire()
    stream.parse_chunk(make_chunk([5], ends=False))
    await watched.judged()
    assert not watched.serving.failure.done()


async def test_failed_probes_of_a_replaced_server_are_not_counted_for_the_new_one(watched: WatchedServer) -> None:
    await watched.begin_to_fail()
    await watched.serving.failure
    watched.serving = watched.slot.serving = replace(
        watched.serving, failure=asyncio.get_running_loop().create_future()
    )
    assert await watched.serving.failure == "3 probes failed: refused"


async def test_a_probe_that_waits_for_a_weight_load_marks_no_server_failed(watched: WatchedServer) -> None:
    await watched.server.probed.acquire()
    async with watched.standing_still():
        await watched.server.over.acquire()
        assert watched.slot.paused_s > 0
    watched.server.answers.set()
    await watched.server.over.acquire()
    assert not watched.serving.failure.done()
    assert watched.slot.state is EngineState.SERVING


async def test_while_weights_are_exchanged_the_server_is_not_probed(watched: WatchedServer) -> None:
    await watched.server.probed.acquire()
    async with watched.standing_still():
        await watched.server.over.acquire()
        for _ in range(100):
            await asyncio.sleep(0)
        assert watched.server.probed.locked()


async def test_a_probe_partly_delayed_by_a_weight_load_marks_no_server_failed(watched: WatchedServer) -> None:
    """They came, and went, while it hung."""
    await watched.server.probed.acquire()
    async with watched.standing_still():
        pass
    await watched.judged()
    assert not watched.serving.failure.done()


async def test_a_probe_of_an_offloaded_server_marks_no_server_failed(watched: WatchedServer) -> None:
    await watched.server.probed.acquire()
    watched.slot.memory_lease = MemoryLease()
    await watched.judged()
    watched.slot.memory_lease = None
    assert not watched.serving.failure.done()


async def test_a_server_that_fails_three_probes_is_marked_failed(watched: WatchedServer) -> None:
    await watched.begin_to_fail()
    assert await watched.serving.failure == "3 probes failed: refused"
