"""If these fail, an engine takes more than it can ever answer, or routers hear something else than what it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineBusy, EngineState, TokensInFlight
from actors.engines.routing.request_queue import RequestQueue
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server.client import SamplingOptions
from actors.engines.server.reply_stream import ReplyStream, SampledReply
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec

MANIFEST = WeightManifest(WeightVersion(7), 0, NO_VERSION, "/weights", "", 0, 0)


class OneTokenServer:
    """A fake: a server, and its client too, that samples one token when it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.received_requests: list[str] = []
        """The names of requests."""

    @property
    def client(self) -> OneTokenServer:
        return self

    async def generate(
        self, rid: str, input_ids: list[int], options: SamplingOptions, key: str, stream: ReplyStream, *, adapter: str
    ) -> SampledReply:
        self.received_requests.append(rid)
        await self.go.wait()
        return SampledReply([5], [-0.5], [7], "length", 0)


class EngineWithQueue:
    """A dispatch with one place and room for two that wait."""

    def __init__(self) -> None:
        self.server = OneTokenServer()
        self.queue = RequestQueue(
            "tiny",
            max_running=1,
            max_queued=2,
            context_length=512,
            deterministic=False,
            prefix_reuse="version",
            state=lambda: EngineState.SERVING,
        )
        self.queue.vocabulary_size = 100

    def serve(self) -> None:
        trouble = asyncio.get_running_loop().create_future()
        serving = ActiveServer(
            cast("Any", self.server),
            ConfirmedWeights(MANIFEST, "sum"),
            self.queue.dispatch_open,
            trouble,
            lambda _: None,
        )
        self.queue.open(serving)

    @asynccontextmanager
    async def with_requests(self, *sizes: int) -> AsyncIterator[list[asyncio.Task[Any]]]:
        """Requests of so many tokens each, named 0, 1, …, are in the engine meanwhile, and answered at its end."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.queue.generate(make_request([3] * (size - 10), 10, name=str(number))))
                for number, size in enumerate(sizes)
            ]
            counts = self.queue.counters
            while counts.running + counts.queued < len(sizes):  # noqa: ASYNC110  # a state of other tasks, not an event
                await asyncio.sleep(0)
            yield tasks
            self.server.go.set()


async def test_a_full_queue_refuses_a_request_at_once_and_accepts_it_once_there_is_room() -> None:
    engine = EngineWithQueue()
    engine.serve()
    async with engine.with_requests(20, 20, 20):
        with pytest.raises(EngineBusy, match="engine tiny has 2 requests waiting, its limit"):
            await engine.queue.generate(make_request([3], 1))
    assert (await engine.queue.generate(make_request([3], 1))).token_ids == [5]
    assert engine.queue.counters.unavailable == 1


@pytest.mark.parametrize(("settings", "most"), [({}, 320), ({"max_queued": 3}, 3)])
def test_the_queue_limit_defaults_to_a_multiple_of_the_running_limit(settings: dict[str, int], most: int) -> None:
    spec = engine_spec(Path(), max_running=20, **settings)
    assert spec.settings.queue_limit == most


async def test_no_request_id_is_a_prefix_of_another() -> None:
    """SGLang ends all whose name begins with the one that it is told to end."""
    engine = EngineWithQueue()
    engine.serve()
    engine.server.go.set()
    for _ in range(12):
        await engine.queue.generate(make_request([3], 1))
    names = engine.server.received_requests
    assert [other for name in names for other in names if other.startswith(name)] == names


def test_an_engine_actor_accepts_more_calls_than_its_engine_accepts_requests() -> None:
    """Otherwise Ray would queue calls that should be refused at once, and health checks would wait behind them."""
    spec = engine_spec(Path(), max_running=512)
    settings = spec.settings
    assert settings.max_concurrent_calls > settings.max_running + settings.queue_limit


async def test_running_queued_and_caller_tokens_are_counted_separately() -> None:
    engine = EngineWithQueue()
    engine.serve()
    async with engine.with_requests(100, 30, 50):
        tokens = engine.queue.count_tokens({"0", "2"})
        assert tokens == TokensInFlight(running=100, queued=80, of_caller=150)
        assert tokens.of_others == 30
    assert engine.queue.count_tokens(()) == TokensInFlight(running=0, queued=0, of_caller=0)


async def test_requests_waiting_for_a_server_count_as_queued() -> None:
    engine = EngineWithQueue()
    async with engine.with_requests(100):
        assert engine.queue.count_tokens(()) == TokensInFlight(running=0, queued=100, of_caller=0)
        engine.serve()


async def test_a_snapshot_reports_the_engines_state_and_weight_version(tmp_path: Path) -> None:
    engine = SGLangEngine(engine_spec(tmp_path, max_running=2))
    load = (await engine.snapshot(())).load
    assert (load.state, load.version, load.paused_s) == (EngineState.NEW, NO_VERSION, 0.0)
    await engine.stop()
    assert (await engine.snapshot(())).load.state is EngineState.STOPPED
