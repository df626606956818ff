"""If these fail, an engine whose machine has room for one version beside its server gets no other any more once one
that it had read was overtaken; or reads and hashes a version again and again while its server starts."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from actors.engines.engine import Engine
from actors.engines.messages import WeightLoadError
from actors.engines.server.client import SGLangClient
from actors.engines.settings import EngineSettings
from actors.engines.weights.swap import ActiveServer, ConfirmedWeights
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


class Buckets:
    """A version in memory."""

    async def __call__(self, client: SGLangClient) -> None:
        """Nothing is told."""


class FakeUpdates:
    """A fake: reads a version into memory, which has room for one."""

    def __init__(self) -> None:
        self._held: Callable[[], Buckets | None] = lambda: None
        self.read = list[int]()
        self.on_read: Callable[[], None] = lambda: None

    async def stage_weights(self, manifest: WeightManifest, model: object) -> Buckets:
        if self._held() is not None:
            raise WeightLoadError("no room")
        self.read.append(manifest.version)
        self.on_read()
        buckets = Buckets()
        self._held = weakref.ref(buckets)
        return buckets


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", "", 0, 0)


@pytest.fixture
def updates() -> FakeUpdates:
    return FakeUpdates()


@pytest.fixture
async def engine(tmp_path: Path, updates: FakeUpdates) -> Engine:
    """It serves version 1."""
    engine = Engine(
        EngineSettings(name="e", run_dir=tmp_path, model_path="", context_length=512, max_running=2, device="cpu")
    )
    trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    nowhere = cast("Any", None)
    engine._serving = ActiveServer(
        nowhere, ConfirmedWeights(manifest(1), "sum"), asyncio.Event(), trouble, lambda version: None
    )
    engine._updates = cast("Any", updates)
    engine._model = engine._group = cast("Any", object())
    return engine


def condemn(engine: Engine) -> None:
    assert engine._serving is not None
    engine._serving.mark_failed("it was silent")


async def test_a_version_that_was_overtaken_leaves_its_room_to_the_next(engine: Engine) -> None:
    for version in (2, 3, 4):
        await engine.stage_weights(manifest(version), 60.0)


async def test_a_load_of_another_version_than_was_read_finds_room(engine: Engine, updates: FakeUpdates) -> None:
    await engine.stage_weights(manifest(2), 60.0)
    updates.on_read = lambda: condemn(engine)
    with pytest.raises(WeightLoadError, match="lost its server"):
        await engine.load_weights(manifest(3), 60.0, patient=False)
    assert updates.read == [2, 3]


async def test_a_version_is_read_once_while_its_engine_starts_a_server(engine: Engine, updates: FakeUpdates) -> None:
    condemn(engine)
    for _ in range(3):
        await engine.stage_weights(manifest(2), 60.0)
        with pytest.raises(WeightLoadError, match="lost its server"):
            await engine.load_weights(manifest(2), 60.0, patient=False)
    assert updates.read == [2]
