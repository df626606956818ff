"""If these fail, a server runs out of places for adapters, or is asked for one that it has forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from actors.engines.messages import ServerLost, WeightLoadError
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.weights.adapter_loader import AdapterLoader, stage_checked_adapter
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import Lora

MOST = 3
LORA = Lora(2, 2.0, ("o_proj",))


@dataclass
class AdapterServer:
    """A fake: a server's adapters, and its client too.  ``broken`` calls fail, ``slow`` ones hang but do their work."""

    loaded: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    @property
    def client(self) -> AdapterServer:
        return self

    async def _call(self, what: str) -> None:
        self.calls.append(what)
        if what.split(maxsplit=1)[0] in self.broken:
            raise ServerLost(what)
        if what.split(maxsplit=1)[0] in self.slow:
            await asyncio.Event().wait()

    async def load_adapter(self, name: str, path: str) -> None:
        assert name not in self.loaded, "the real one refuses a name that it has"
        assert len(self.loaded) < MOST
        if "load" not in self.broken:
            self.loaded[name] = path
        await self._call(f"load {name}")

    async def unload_adapter(self, name: str) -> None:
        await self._call(f"unload {name}")
        if self.loaded.pop(name, None) is None:
            raise ServerLost("it is not loaded")

    async def list_adapters(self) -> dict[str, str]:
        return dict(self.loaded)

    async def probe(self, rid: str, *, adapter: str = "") -> None:
        assert adapter in self.loaded, f"{rid}: the real one would load it again"
        await self._call(f"probe {adapter}")


class FakeDispatch:
    """A fake: which versions requests use."""

    def __init__(self) -> None:
        self.request_ended, self.versions_in_use = asyncio.Event(), set[WeightVersion]()

    def leave(self, version: int) -> None:
        self.versions_in_use.discard(WeightVersion(version))
        self.request_ended.set()


class EngineWithLoader:
    """An adapter loader, and a server that has just been started to serve version 1."""

    def __init__(self, folder: Path) -> None:
        self.server, self.dispatch, self.folder = AdapterServer(), FakeDispatch(), folder
        self.loader = AdapterLoader(LORA, MOST, "base", self.dispatch)
        self.serving = self.started()

    def started(self) -> ActiveServer:
        base = self.loader.start_weights(self.manifest(1))
        trouble = asyncio.get_running_loop().create_future()
        return ActiveServer(
            cast("Any", self.server), ConfirmedWeights(base, "sum"), asyncio.Event(), trouble, lambda version: None
        )

    def manifest(self, version: int) -> WeightManifest:
        return WeightManifest(WeightVersion(version), version, NO_VERSION, str(self.folder / str(version)), "", 0, 0)

    async def take(self, version: int, seconds: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        await self.loader.load_unpaused(self.serving, stage_checked_adapter(self.manifest(version)), deadline)

    @property
    def serves(self) -> tuple[int, str]:
        confirmed = self.serving.confirmed
        return confirmed.manifest.version, confirmed.adapter

    async def loaded(self, *versions: int) -> None:
        """Return once these are."""
        while set(self.server.loaded) != {f"v{version}" for version in versions}:  # noqa: ASYNC110  # another task's state
            await asyncio.sleep(0)


@asynccontextmanager
async def tidied(folder: Path) -> AsyncIterator[EngineWithLoader]:
    engine = EngineWithLoader(folder)
    await engine.loader.attach_server(engine.serving, engine.manifest(1))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tidying = group.create_task(engine.loader.run_cleanup())
        yield engine
        tidying.cancel()


async def test_a_replaced_adapter_is_unloaded_when_its_last_request_ends(tmp_path: Path) -> None:
    async with tidied(tmp_path) as engine:
        assert engine.serves == (1, "v1")
        engine.dispatch.leave(1)
        engine.dispatch.versions_in_use = {WeightVersion(1)}
        await engine.take(2)
        assert (engine.serves, set(engine.server.loaded)) == ((2, "v2"), {"v1", "v2"})
        assert engine.serving.confirmed.checksum == "sum", "the base is what it was"
        engine.dispatch.leave(1)
        await engine.loaded(2)
        await engine.take(3)
        await engine.loaded(3)
        assert engine.server.calls.count("unload v2") == 1


async def test_an_adapter_load_waits_for_a_free_slot(tmp_path: Path) -> None:
    async with tidied(tmp_path) as engine, asyncio.TaskGroup() as group:
        for version in range(2, MOST + 1):
            engine.dispatch.versions_in_use.add(WeightVersion(version - 1))
            await engine.take(version)
        engine.dispatch.versions_in_use.add(WeightVersion(MOST))
        with pytest.raises(WeightLoadError, match="no answer in time, with 3 of 3 adapters"):
            await engine.take(8, seconds=0.01)
        loading = group.create_task(engine.take(9))
        engine.dispatch.leave(2)
        await loading
        assert (engine.serves, set(engine.server.loaded)) == ((9, "v9"), {"v1", "v3", "v9"})


@pytest.mark.parametrize("broken", ["load", "probe"])
async def test_a_failed_load_keeps_the_previous_adapter_and_can_be_retried(tmp_path: Path, broken: str) -> None:
    async with tidied(tmp_path) as engine:
        engine.server.broken = {broken}
        with pytest.raises(ServerLost):
            await engine.take(2)
        assert (engine.serves, set(engine.server.loaded)) == ((1, "v1"), {"v1"})
        engine.server.broken = set()
        await engine.take(2)
        assert engine.serves == (2, "v2")


async def test_an_adapter_loaded_from_another_folder_is_not_served(tmp_path: Path) -> None:
    async with tidied(tmp_path) as engine:

        async def load_another(name: str, path: str) -> None:
            engine.server.loaded[name] = f"{path}-of-another"

        engine.server.load_adapter = load_another
        with pytest.raises(WeightLoadError, match="-of-another"):
            await engine.take(2)
        assert (engine.serves, set(engine.server.loaded)) == ((1, "v1"), {"v1"})


async def test_leftovers_of_an_abandoned_load_are_removed_before_the_next(tmp_path: Path) -> None:
    """It may be done by the server after its caller has gone."""
    async with tidied(tmp_path) as engine:
        for version in range(2, 9):
            engine.server.slow = {"load"}
            with pytest.raises(WeightLoadError):
                await engine.take(version, seconds=0.01)
            assert engine.serves[0] == version - 1
            engine.server.slow = set()
            await engine.take(version)
            assert engine.serves[0] == version


async def test_a_failed_unload_is_retried_at_the_next_opportunity(tmp_path: Path) -> None:
    async with tidied(tmp_path) as engine:
        engine.server.broken = {"unload"}
        await engine.take(2)
        while "unload v1" not in engine.server.calls:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        engine.server.broken = set()
        engine.dispatch.leave(2)
        await engine.loaded(2)


async def test_a_new_server_loads_only_the_newest_adapter(tmp_path: Path) -> None:
    async with tidied(tmp_path) as engine:
        engine.dispatch.versions_in_use = {WeightVersion(1)}
        await engine.take(2)
        engine.server.loaded.clear()  # it has died, and another has started
        newest, engine.serving = engine.serving.confirmed.manifest, engine.started()
        await engine.loader.attach_server(engine.serving, newest)
        assert (engine.serves, set(engine.server.loaded)) == ((2, "v2"), {"v2"})
        engine.dispatch.leave(1)
        await engine.take(3)
        await engine.loaded(3)
