"""If these fail, workers keep engines busy with questions, or a dead engine keeps the news of the others from them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from actors.engines import remote_engine
from actors.engines.messages import (
    EngineLoad,
    EngineSnapshot,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    PartialReply,
)
from actors.engines.remote_engine import RemoteEngine, polling_engines
from actors.runtime.remote_errors import ActorDied
from tests.support.actors.engine_requests import make_load, make_request
from tests.support.actors.local_actors import LocalRemote

CAME = PartialReply([7, 8], [-0.5, -0.25], [3, 3])


class SnapshotEngine:
    """A fake: requests wait in it until it dies; it says how it stands, until then."""

    def __init__(self, others: int) -> None:
        self.dies, self.snapshot_count, self._load = asyncio.Event(), 0, make_load(others)

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        await self.dies.wait()
        raise ActorDied("engine", "its process ended")

    async def snapshot(self, names: Collection[str]) -> EngineSnapshot:
        self.snapshot_count += 1
        if self.dies.is_set():
            raise ActorDied("engine", "its process ended")
        return EngineSnapshot(dict.fromkeys(names, CAME), self._load)

    async def partial_replies(self, names: Collection[str]) -> dict[str, PartialReply]:
        return dict.fromkeys(names, CAME)


class PolledEngines:
    """Two engines, and what a router hears of them."""

    def __init__(self) -> None:
        self.actors = {name: SnapshotEngine(others) for name, others in (("busy", 900), ("idle", 100))}
        self.engines = [RemoteEngine(LocalRemote(actor, name)) for name, actor in self.actors.items()]
        self.snapshots: list[tuple[str, int]] = []
        self.more = asyncio.Event()

    def hear(self, name: str, load: EngineLoad) -> None:
        self.snapshots.append((name, load.tokens.of_others))
        self.more.set()

    async def until_heard(self, *what: tuple[str, int]) -> None:
        while not set(what) <= set(self.snapshots):
            self.more.clear()
            await self.more.wait()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "POLL_INTERVAL_S", 0.01)


async def test_all_engines_are_polled_while_one_has_a_request_of_this_worker() -> None:
    """The next engine is chosen among those that the session does not use yet."""
    polled = PolledEngines()
    async with asyncio.TaskGroup() as group, polling_engines(polled.engines, polled.hear):
        asking = group.create_task(polled.engines[0].generate(make_request([1], 9)))
        await polled.until_heard(("busy", 900), ("idle", 100))
        asking.cancel()


class LookedAt(RemoteEngine):
    """Tells when somebody looks whether it is asked."""

    looked: asyncio.Semaphore

    @property
    def has_requests(self) -> bool:
        self.looked.release()
        return super().has_requests


async def test_a_worker_without_requests_polls_no_engine() -> None:
    actor = SnapshotEngine(100)
    engine = LookedAt(LocalRemote(actor))
    engine.looked = asyncio.Semaphore(0)
    async with polling_engines([engine], lambda name, load: None):
        for _ in range(3):
            await engine.looked.acquire()
    assert actor.snapshot_count == 0


async def test_a_dead_engine_leaves_its_partial_reply_and_the_others_are_still_polled() -> None:
    polled = PolledEngines()
    async with polling_engines(polled.engines, polled.hear), asyncio.TaskGroup() as group:
        other = group.create_task(polled.engines[1].generate(make_request([1], 9)))
        going = group.create_task(_failed(polled.engines[0]))
        await polled.until_heard(("busy", 900), ("idle", 100))
        polled.actors["busy"].dies.set()
        assert await going == CAME
        polled.snapshots.clear()
        await polled.until_heard(("idle", 100))
        assert {name for name, _ in polled.snapshots} == {"idle"}
        other.cancel()


async def _failed(engine: RemoteEngine) -> PartialReply:
    with pytest.raises(EngineUnavailable, match="its process ended") as died:
        await engine.generate(make_request([1], 9))
    return died.value.partial_reply
