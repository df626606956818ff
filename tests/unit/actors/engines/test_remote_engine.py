"""Engine actors from afar: what is forgotten with one is sampled again, and its watcher was told something else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from actors.engines import remote_engine
from actors.engines.messages import (
    EngineLoad,
    EngineSnapshot,
    EngineState,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    PartialReply,
    TokensInFlight,
)
from actors.engines.remote_engine import RemoteEngine, polling_engines
from actors.runtime.remote_errors import ActorDied
from protocol.weights import WeightVersion
from tests.support.actors.engine_requests import make_request
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_policy import partial_reply

SAID = partial_reply("hello")
LOAD = EngineLoad(
    state=EngineState.SERVING,
    paused_s=0.0,
    version=WeightVersion(1),
    tokens=TokensInFlight(running=9, queued=0, of_caller=9),
)


class FakeEngineActor:
    """Has sampled one token more of :data:`SAID` whenever it is asked; dies on command, or with the last."""

    def __init__(self) -> None:
        self.dies = asyncio.Event()
        self.received_requests: list[GenerateRequest] = []
        self.snapshots = self._came = 0

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        self.received_requests.append(request)
        self._came = len(request.resume_from)
        await self.dies.wait()
        raise ActorDied("engine-0", "its process ended")

    async def snapshot(self, known: Mapping[str, int]) -> EngineSnapshot:
        self.snapshots += 1
        self._came += 1
        if self._came == len(SAID):
            self.dies.set()
        came = PartialReply(SAID.token_ids[: self._came], SAID.logprobs[: self._came], SAID.versions[: self._came])
        return EngineSnapshot({name: came.skip_tokens(count) for name, count in known.items()}, LOAD)


async def test_a_watcher_receives_partial_replies_and_a_dead_engine_leaves_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_engine, "POLL_INTERVAL_S", 3600.0)  # for those who are not watched
    actor, partials = FakeEngineActor(), list[str]()
    engine = RemoteEngine(LocalRemote(actor))
    before = partial_reply("he")
    async with polling_engines([engine], lambda name, load: None):
        with pytest.raises(EngineUnavailable, match="its process ended") as died:
            await engine.generate(
                make_request([1], 9, resume_from=before),
                lambda came: partials.append("".join(map(chr, came.token_ids))),
            )
    assert partials[:2] == ["hel", "hell"]
    assert died.value.partial_reply == SAID


async def test_the_partial_reply_of_an_unwatched_request_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(remote_engine, "WATCHED_POLL_INTERVAL_S", 3600.0)  # nobody does
    engine = RemoteEngine(LocalRemote(FakeEngineActor()))
    async with polling_engines([engine], lambda name, load: None):
        with pytest.raises(EngineUnavailable) as died:
            await engine.generate(make_request([1], 9))
    assert died.value.partial_reply == SAID


async def test_a_request_to_a_hanging_actor_keeps_its_partial_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next engine would sample these tokens again, and a watcher would see different text."""
    monkeypatch.setattr(remote_engine, "MARGIN_S", 0.0)
    engine, before = RemoteEngine(LocalRemote(FakeEngineActor())), partial_reply("he")
    with pytest.raises(EngineUnavailable, match="local hangs") as gave_up:
        await engine.generate(make_request([1], 9, resume_from=before, deadline_s=0.0))
    assert gave_up.value.partial_reply == before


async def test_frequent_polling_stops_after_the_last_watcher_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker asks each engine."""
    monkeypatch.setattr(remote_engine, "POLL_INTERVAL_S", 3600.0)
    monkeypatch.setattr(remote_engine, "WATCHED_POLL_INTERVAL_S", 0.0)
    actor = FakeEngineActor()
    engine = RemoteEngine(LocalRemote(actor))
    actor.dies.set()
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await engine.generate(make_request([1], 9), lambda came: None)
    actor.dies.clear()
    async with polling_engines([engine], lambda name, load: None), asyncio.TaskGroup() as group:
        unwatched = group.create_task(engine.generate(make_request([1], 9)))
        for _ in range(20):
            await asyncio.sleep(0)
        unwatched.cancel()
    assert actor.snapshots == 0
