"""If these fail, a server that dies at once is started again and again, or a new one samples with old weights."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from actors.engines import supervisor as module
from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineStartError, ServerLost
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server_slot import ServerSlot
from actors.engines.supervisor import ServerSupervisor
from actors.engines.weights.loader import FileWeightLoader, StagedWeights, stage_checked_files
from actors.engines.weights.updater import WeightUpdater
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import engine_spec


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", f"{version}", 0, 0)


class RestartedServer:
    """A fake, and its own client."""

    def __init__(self) -> None:
        self.client, self.pid, self.port = self, 7, 3
        self.held_version, self.refuses, self.stops = 1, False, asyncio.Event()
        self.stops.set()

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def update_weights(self, path: str, version: int) -> int:
        return version

    async def read_checksum(self) -> str:
        return f"sum of {self.held_version}"

    async def update_weights_and_checksum(self, path: str, version: int) -> str:
        if self.refuses:
            raise ServerLost("refused")
        self.held_version = version
        return await self.read_checksum()

    async def stop(self) -> None:
        await self.stops.wait()


class AcceptingLoader(FileWeightLoader):
    """A fake: every folder is there, and whole."""

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        return stage_checked_files(manifest)


class Supervised:
    """A slot whose servers are fakes, and its supervisor."""

    def __init__(self, run_dir: Path) -> None:
        self.slot = ServerSlot(engine_spec(run_dir, stop_grace_s=0.0))
        self.weights = WeightUpdater(self.slot, AcceptingLoader())
        self.weights.model = cast("Any", object())
        self.supervisor = ServerSupervisor(self.slot, self.weights)

    def serving(self, server: RestartedServer) -> ActiveServer:
        failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        confirmed, queue = ConfirmedWeights(manifest(1), "sum of 1"), self.slot.queue
        return ActiveServer(cast("Any", server), confirmed, queue.dispatch_open, failure, queue.note_weight_change)


@pytest.fixture
def engine(tmp_path: Path) -> Supervised:
    return Supervised(tmp_path)


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_new_server_loads_staged_weights_before_it_serves(engine: Supervised, refuses: bool) -> None:
    """And what it does not take keeps it from nothing."""
    server = RestartedServer()
    server.refuses = refuses
    await engine.weights.stage(manifest(2), 60.0)
    found = engine.serving(server)
    await engine.weights.load_staged(found)
    assert found.confirmed.manifest.version == (1 if refuses else 2)
    assert not found.failure.done()


async def test_a_server_starts_on_the_newest_weights_that_it_can_start_on(
    engine: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the server before had may be gone meanwhile; and those that were staged may end it."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0,))
    tried: list[int] = []

    async def launch(newest: WeightManifest) -> ActiveServer:
        tried.append(newest.version)
        if len(tried) < 3:
            raise EngineStartError("it ended at once")
        return engine.serving(RestartedServer())

    monkeypatch.setattr(engine.supervisor, "launch", launch)
    await engine.weights.stage(manifest(2), 60.0)
    await engine.supervisor.relaunch(ConfirmedWeights(manifest(1), "sum of 1"), 0)
    assert tried == [2, 1, 2]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_restarted_server_is_trusted_if_its_files_match_the_published_digest(
    engine: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Then the one before was wrong, and starting one more would change nothing; otherwise the files were changed."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0,))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights" if whole else b"others").hexdigest()
    published = replace(manifest(1), path=str(tmp_path), sha256=digest)
    launched: list[ActiveServer] = []

    async def launch(given: WeightManifest) -> ActiveServer:
        server = RestartedServer()
        launched.append(engine.serving(server))
        if len(launched) == 2:
            raise asyncio.CancelledError
        return launched[-1]

    monkeypatch.setattr(engine.supervisor, "launch", launch)
    if whole:
        assert await engine.supervisor.relaunch(ConfirmedWeights(published, "half a sum"), 0) is launched[0]
    else:
        with pytest.raises(asyncio.CancelledError):
            await engine.supervisor.relaunch(ConfirmedWeights(published, "half a sum"), 0)
    (file,) = (tmp_path / "events").iterdir()
    kind = orjson.loads(file.read_bytes())["kind"]
    assert kind == ("engine.weights_repaired" if whole else "engine.restart_failed")


async def test_a_checksum_complaint_restarts_only_a_server_with_that_version_and_checksum(
    tmp_path: Path, engine: Supervised
) -> None:
    doubted = SGLangEngine(engine_spec(tmp_path))
    doubted.slot.serving = found = engine.serving(RestartedServer())
    for version, checksum in ((WeightVersion(2), "sum of 1"), (WeightVersion(1), "sum of 2")):
        await doubted.restart_if_checksum(version, checksum)
        assert not found.failure.done()
    await doubted.restart_if_checksum(WeightVersion(1), "sum of 1")
    assert "in doubt" in found.failure.result()


async def test_servers_that_die_at_once_are_restarted_with_growing_delays(
    engine: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    async def relaunch(confirmed: ConfirmedWeights, number: int) -> ActiveServer:
        failures.append(number)
        fresh = engine.serving(RestartedServer())
        if len(failures) < 3:
            fresh.mark_failed("it died")
        else:
            monkeypatch.setattr(module, "HEALTHY_S", 0.0)
            fresh.mark_failed("it died, later")
        return fresh if len(failures) < 5 else engine.serving(RestartedServer())

    monkeypatch.setattr(engine.supervisor, "relaunch", relaunch)
    engine.slot.serving = engine.serving(RestartedServer())
    engine.slot.serving.mark_failed("it died")
    async with asyncio.TaskGroup() as group:
        supervising = group.create_task(engine.supervisor.watch())
        while len(failures) < 5:  # noqa: ASYNC110  # a state of another task, not an event
            await asyncio.sleep(0)
        supervising.cancel()
    assert failures == [1, 2, 3, 0, 0]


async def test_server_processes_that_do_not_end_are_reported(
    engine: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.0)
    server = RestartedServer()
    server.stops.clear()
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(engine.supervisor.end_server(cast("Any", server)))
        while not engine.slot.error:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        assert not ending.done()
        server.stops.set()
    (file,) = (tmp_path / "events").iterdir()
    event = orjson.loads(file.read_bytes())
    assert (event["kind"], event["why"]) == (
        "engine.restart_failed",
        "process 7 and its children have not ended within 0 s",
    )
