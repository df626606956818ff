"""If these fail, an engine whose machine has room for one version beside its server gets no other any more once one
that it had read was overtaken; or reads and hashes a version again and again while its server starts."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from actors.engines.engine import SGLangEngine
from actors.engines.messages import WeightLoadError
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server.client import SGLangClient
from actors.engines.weights.loader import FileWeightLoader, StagedWeights
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import engine_spec


class FakeLoader(FileWeightLoader):
    """A fake: reads a version into memory, which has room for one."""

    def __init__(self) -> None:
        self._held: Callable[[], Buckets | None] = lambda: None
        self.read = list[int]()
        self.on_read: Callable[[], None] = lambda: None

    async def stage_weights(self, manifest: WeightManifest, model: object) -> StagedWeights:
        if self._held() is not None:
            raise WeightLoadError("no room")
        self.read.append(manifest.version)
        self.on_read()
        buckets = Buckets()
        self._held = weakref.ref(buckets)
        return StagedWeights(manifest, buckets.load)


class Buckets:
    """A version in memory."""

    async def load(self, client: SGLangClient) -> str | None:
        """Nothing is told."""


def manifest(version: int) -> WeightManifest:
    return WeightManifest(WeightVersion(version), version, NO_VERSION, f"/weights/{version}", "", 0, 0)


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
async def engine(tmp_path: Path, loader: FakeLoader) -> SGLangEngine:
    """It serves version 1."""
    engine = SGLangEngine(engine_spec(tmp_path))
    slot, nowhere = engine.slot, cast("Any", None)
    failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    slot.serving = ActiveServer(
        nowhere, ConfirmedWeights(manifest(1), "sum"), asyncio.Event(), failure, lambda version: None
    )
    engine.weights.loader = loader
    engine.weights.model = slot.group = cast("Any", object())
    return engine


def condemn(engine: SGLangEngine) -> None:
    assert engine.slot.serving is not None
    engine.slot.serving.mark_failed("it was silent")


async def test_a_superseded_version_frees_its_space_for_the_next(engine: SGLangEngine) -> None:
    for version in (2, 3, 4):
        await engine.stage_weights(manifest(version), 60.0)


async def test_loading_another_version_than_the_staged_one_finds_space(
    engine: SGLangEngine, loader: FakeLoader
) -> None:
    await engine.stage_weights(manifest(2), 60.0)
    loader.on_read = lambda: condemn(engine)
    with pytest.raises(WeightLoadError, match="lost its server"):
        await engine.load_weights(manifest(3), 60.0, wait_for_restart=False)
    assert loader.read == [2, 3]


async def test_a_version_is_read_once_while_its_engine_starts_a_server(
    engine: SGLangEngine, loader: FakeLoader
) -> None:
    condemn(engine)
    for _ in range(3):
        await engine.stage_weights(manifest(2), 60.0)
        with pytest.raises(WeightLoadError, match="lost its server"):
            await engine.load_weights(manifest(2), 60.0, wait_for_restart=False)
    assert loader.read == [2]
