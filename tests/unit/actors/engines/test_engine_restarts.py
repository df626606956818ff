"""If these fail, a server that dies at once is started again and again, or a new one samples with old weights."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from actors.engines import engine as module
from actors.engines.engine import Engine, _StagedVersion
from actors.engines.messages import EnginePids, EngineStartError, ServerLost
from actors.engines.server.client import ServerWeights
from actors.engines.settings import EngineSettings
from actors.engines.weights.loader import staged_file_load
from actors.engines.weights.swap import ActiveServer, ConfirmedWeights
from actors.engines.weights.updater import InPlaceUpdater
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", f"{version}", 0, 0)


class FakeServer:
    """A fake, and its own client."""

    def __init__(self) -> None:
        self.client, self.pids, self.port = self, EnginePids(8, 7), 3
        self.held_version, self.refuses, self.stops = 1, False, asyncio.Event()
        self.stops.set()

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def update_weights(self, path: str, version: int) -> int:
        return version

    async def read_checksum(self) -> str:
        return f"sum of {self.held_version}"

    async def update_weights_and_checksum(self, path: str, version: int) -> ServerWeights:
        if self.refuses:
            raise ServerLost("refused")
        self.held_version = version
        return ServerWeights(version, await self.read_checksum())

    async def stop(self) -> None:
        await self.stops.wait()


def serving(engine: Engine, server: FakeServer) -> ActiveServer:
    trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    confirmed = ConfirmedWeights(manifest(1), "sum of 1")
    return ActiveServer(cast("Any", server), confirmed, engine._dispatch.dispatch_open, trouble, lambda version: None)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    settings = EngineSettings(
        name="e", run_dir=tmp_path, model_path="", context_length=512, max_running=2, device="cpu", stop_grace_s=0.0
    )
    engine = Engine(settings)
    engine._updates = InPlaceUpdater(cast("Any", None), grace_s=60.0, item_bytes=4)
    return engine


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_new_server_has_what_was_staged_before_it_is_asked_anything(engine: Engine, refuses: bool) -> None:
    """And what it does not take keeps it from nothing."""
    server = FakeServer()
    server.refuses = refuses
    engine._staged = _StagedVersion(manifest(2), staged_file_load(manifest(2)), 0.0)
    found = serving(engine, server)
    await engine._catch_up(found)
    assert found.confirmed.manifest.version == (1 if refuses else 2)
    assert not found.failure.done()


async def test_a_server_starts_on_the_newest_weights_that_it_can_start_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the server before had may be gone meanwhile; and those that were staged may end it."""
    monkeypatch.setattr(module, "_BACK_OFF_S", (0.0,))
    tried: list[int] = []

    async def launch(given: WeightManifest) -> ActiveServer:
        tried.append(given.version)
        if len(tried) < 3:
            raise EngineStartError("it ended at once")
        return serving(engine, FakeServer())

    monkeypatch.setattr(engine, "_launch", launch)
    engine._staged = _StagedVersion(manifest(2), staged_file_load(manifest(2)), 0.0)
    await engine._relaunch(ConfirmedWeights(manifest(1), "sum of 1"), 0)
    assert tried == [2, 1, 2]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_server_that_begins_with_other_weights_is_right_where_the_files_are_as_published(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Then the one before was wrong, and starting one more would change nothing; otherwise the files were changed."""
    monkeypatch.setattr(module, "_BACK_OFF_S", (0.0,))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights" if whole else b"others").hexdigest()
    published = replace(manifest(1), path=str(tmp_path), sha256=digest)
    launched: list[ActiveServer] = []

    async def launch(given: WeightManifest) -> ActiveServer:
        server = FakeServer()
        launched.append(serving(engine, server))
        if len(launched) == 2:
            raise asyncio.CancelledError
        return launched[-1]

    monkeypatch.setattr(engine, "_launch", launch)
    if whole:
        assert await engine._relaunch(ConfirmedWeights(published, "half a sum"), 0) is launched[0]
    else:
        with pytest.raises(asyncio.CancelledError):
            await engine._relaunch(ConfirmedWeights(published, "half a sum"), 0)
    (file,) = (tmp_path / "events").iterdir()
    told = orjson.loads(file.read_bytes())["kind"]
    assert told == ("engine.weights_repaired" if whole else "engine.restart_failed")


async def test_only_the_weights_that_are_in_doubt_are_doubted(engine: Engine) -> None:
    engine._serving = found = serving(engine, FakeServer())
    for version, checksum in ((WeightVersion(2), "sum of 1"), (WeightVersion(1), "sum of 2")):
        await engine.distrust_weights(version, checksum)
        assert not found.failure.done()
    await engine.distrust_weights(WeightVersion(1), "sum of 1")
    assert "in doubt" in found.failure.result()


async def test_servers_that_die_at_once_are_started_slower_and_slower(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    async def relaunch(confirmed: ConfirmedWeights, number: int) -> ActiveServer:
        failures.append(number)
        fresh = serving(engine, FakeServer())
        if len(failures) < 3:
            fresh.mark_failed("it died")
        else:
            monkeypatch.setattr(module, "_WELL_S", 0.0)
            fresh.mark_failed("it died, later")
        return fresh if len(failures) < 5 else serving(engine, FakeServer())

    monkeypatch.setattr(engine, "_relaunch", relaunch)
    engine._serving = serving(engine, FakeServer())
    engine._serving.mark_failed("it died")
    async with asyncio.TaskGroup() as group:
        supervising = group.create_task(engine._supervise())
        while len(failures) < 5:  # noqa: ASYNC110  # a state of another task, not an event
            await asyncio.sleep(0)
        supervising.cancel()
    assert failures == [1, 2, 3, 0, 0]


async def test_a_server_whose_processes_do_not_end_is_told(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_S", 0.0)
    server = FakeServer()
    server.stops.clear()
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(engine._end(cast("Any", server)))
        while not engine._error:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        assert not ending.done()
        server.stops.set()
    (file,) = (tmp_path / "events").iterdir()
    told = orjson.loads(file.read_bytes())
    assert (told["kind"], told["why"]) == (
        "engine.restart_failed",
        "process 7 and its children have not ended within 0 s",
    )
