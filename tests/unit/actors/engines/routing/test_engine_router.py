"""The router: sessions keep their cached prefix, no engine is drowned, a dead one costs nobody an episode."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from actors.engines.messages import (
    EMPTY_PARTIAL_REPLY,
    EngineBusy,
    EngineState,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    RequestRefused,
    RequestTimedOut,
)
from actors.engines.routing.router import Router
from tests.support.actors.engine_requests import make_load, make_request
from tests.support.fakes.fake_clock import FakeClock


class FakeRemoteEngine:
    """Answers with its name, or raises; requests wait while ``hold`` is not set."""

    def __init__(self, name: str, clock: FakeClock) -> None:
        self.name, self._clock = name, clock
        self.hold = asyncio.Event()
        self.hold.set()
        self.fails: Callable[[], Exception | None] = lambda: None
        self.takes_s = 0.0
        self.watched: list[bool] = []
        self.received_requests: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        self.received_requests.append(request)
        self.watched.append(watch is not None)
        await self.hold.wait()
        self._clock.now += self.takes_s
        if (error := self.fails()) is not None:
            raise error
        return GenerateReply(
            token_ids=[1],
            logprobs=[0.0],
            versions=[0],
            finish="stop",
            key_version=0,
            mixed_prefix=False,
            server_switches=0,
            ms=0.0,
            cached_tokens=0,
            engine=self.name,
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engines(clock: FakeClock) -> list[FakeRemoteEngine]:
    return [FakeRemoteEngine(f"e{index}", clock) for index in range(3)]


@pytest.fixture
def router(engines: list[FakeRemoteEngine], clock: FakeClock) -> Router:
    return Router(engines, clock=clock, pause=clock.pause)


def ask(session: str, deadline_s: float = 60.0) -> GenerateRequest:
    return make_request([1], 1, session=session, deadline_s=deadline_s)


async def test_a_session_stays_where_its_prefix_is_cached(router: Router) -> None:
    first = await router.generate(ask("s"))
    for other in range(5):
        await router.generate(ask(f"other {other}"))
    assert (await router.generate(ask("s"))).engine == first.engine
    assert router.statistics().moved == 0


async def test_new_sessions_go_to_the_least_loaded_engine(router: Router, engines: list[FakeRemoteEngine]) -> None:
    for engine in engines:
        engine.hold.clear()
    async with asyncio.TaskGroup() as group:
        for session in range(9):
            group.create_task(router.generate(ask(str(session))))
        while sum(router.statistics().in_flight.values()) < 9:  # noqa: ASYNC110  # a state, not an event
            await asyncio.sleep(0)
        assert set(router.statistics().in_flight.values()) == {3}
        for engine in engines:
            engine.hold.set()
    assert set(router.statistics().in_flight.values()) == {0}


async def test_routers_of_different_workers_start_with_different_engines(engines: list[FakeRemoteEngine]) -> None:
    """A thousand workers with one session each would else all wait for engine 0."""
    firsts = {(await Router(engines, first=first).generate(ask("s"))).engine for first in range(len(engines))}
    assert firsts == {engine.name for engine in engines}


async def test_a_session_leaves_an_engine_that_is_overloaded(router: Router, engines: list[FakeRemoteEngine]) -> None:
    home = next(engine for engine in engines if engine.name == "e0")
    assert (await router.generate(ask("s"))).engine == home.name
    home.hold.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(router.generate(ask("s")))
        while router.statistics().in_flight[home.name] < 9:  # noqa: ASYNC110  # a state, not an event
            await asyncio.sleep(0)
        assert (await router.generate(ask("s"))).engine != home.name
        home.hold.set()
    assert router.statistics().moved == 1


async def test_a_request_moves_away_from_a_failed_engine(router: Router, engines: list[FakeRemoteEngine]) -> None:
    engines[0].fails = lambda: EngineUnavailable("dead")
    replies = [await router.generate(ask(f"s{number}")) for number in range(6)]
    assert {reply.engine for reply in replies} <= {"e1", "e2"}
    assert len(engines[0].received_requests) == 1, "it is avoided for a while"


async def test_a_failed_engine_is_tried_again_later(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    engines[0].fails = lambda: EngineUnavailable("dead")
    await router.generate(ask("s"))
    clock.now += 11
    engines[0].fails = lambda: None
    assert "e0" in {(await router.generate(ask(f"new {number}"))).engine for number in range(len(engines))}


async def test_a_request_that_times_out_does_not_move_its_session_to_another_engine(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    home = next(engine for engine in engines if engine.name == "e0")
    assert (await router.generate(ask("s"))).engine == home.name
    home.fails, home.takes_s = lambda: RequestTimedOut("too long"), 20.0
    with pytest.raises(EngineUnavailable, match="too long"):
        await router.generate(ask("s", deadline_s=20))
    home.fails, home.takes_s = lambda: None, 0.0
    assert (await router.generate(ask("s"))).engine == home.name
    assert router.statistics().moved == 0


async def test_an_engine_with_a_full_queue_is_tried_again_within_seconds(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    engines[0].fails = lambda: EngineBusy("full")
    assert (await router.generate(ask("s"))).engine != "e0"
    engines[0].fails = lambda: None
    clock.now += 2
    assert "e0" in {(await router.generate(ask(f"new {number}"))).engine for number in range(len(engines))}


async def test_busy_engines_are_asked_until_the_deadline(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    for engine in engines:
        engine.fails = lambda: EngineBusy("full") if clock.now < 30 else None
    assert (await router.generate(ask("s"))).token_ids == [1]
    assert 30 <= clock.now < 60


async def test_the_deadline_bounds_all_attempts_together(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    for engine in engines:
        engine.fails, engine.takes_s = lambda: EngineUnavailable("dead"), 7.0
    with pytest.raises(EngineUnavailable, match="no engine answered within 20 s: dead"):
        await router.generate(ask("s", deadline_s=20))
    requests = [request.deadline_s for engine in engines for request in engine.received_requests]
    assert max(requests) == 20
    assert sum(deadline > 0 for deadline in requests) == len(requests) == 3


async def test_an_engine_restart_longer_than_the_reply_limit_fails_no_request(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    """Otherwise one killed server spends every replacement of the episodes that wait for it, and ends an evaluation."""
    for engine in engines:
        engine.fails = lambda: EngineUnavailable("restarting") if clock.now < 300 else None
    assert (await router.generate(replace(ask("s", deadline_s=20), restart_s=900))).token_ids == [1]
    requests = [request for engine in engines for request in engine.received_requests]
    assert {request.deadline_s for request in requests} == {20}
    assert all((request.restart_s == 0) == (request.patience_s is not None) for request in requests)


async def test_a_request_waits_for_a_silent_engine_only_if_no_other_is_left(
    router: Router, engines: list[FakeRemoteEngine], clock: FakeClock
) -> None:
    for engine in engines[:2]:
        engine.fails = lambda: EngineUnavailable("restarting")
    assert (await router.generate(ask("s"))).engine == "e2"
    assert [engine.received_requests[0].patience_s for engine in engines] == [2.0, 2.0, None]


async def test_the_next_engine_resumes_from_the_tokens_of_the_failed_one(
    router: Router, engines: list[FakeRemoteEngine]
) -> None:
    came = PartialReply([7, 8], [-0.5, -0.25], [3, 3])
    engines[0].fails = lambda: EngineUnavailable("dead", came)
    engines[1].fails = lambda: EngineUnavailable("dead as well, before anything came")
    await router.generate(ask("s"))
    assert [engine.received_requests[0].resume_from for engine in engines] == [EMPTY_PARTIAL_REPLY, came, came]


async def test_only_watched_requests_are_polled_frequently(engines: list[FakeRemoteEngine]) -> None:
    router = Router(engines[:1])
    await router.generate(ask("s"))
    await router.generate(ask("s"), lambda received: None)
    assert engines[0].watched == [False, True]


async def test_a_callers_bug_is_not_retried(router: Router, engines: list[FakeRemoteEngine]) -> None:
    engines[0].fails = lambda: RequestRefused("outside the vocabulary")
    with pytest.raises(RequestRefused):
        await router.generate(ask("s"))
    assert sum(len(engine.received_requests) for engine in engines) == 1


async def test_requests_of_other_routers_count_towards_an_engines_load(router: Router) -> None:
    """Otherwise every worker would send its new episodes to an engine that all the others fill."""
    for name, tokens in (("e0", 900), ("e1", 500), ("e2", 700)):
        router.update_load(name, make_load(tokens))
    assert router.statistics().tokens == {"e0": 900, "e1": 500, "e2": 700}
    assert (await router.generate(ask("s"))).engine == "e1"


async def test_a_request_waits_for_a_restarting_engine_if_all_are_restarting(
    router: Router, engines: list[FakeRemoteEngine]
) -> None:
    """It has no other: it is not called back after two seconds."""
    for engine in engines:
        router.update_load(engine.name, make_load(state=EngineState.RESTARTING))
    assert (await router.generate(ask("s"))).engine == "e0"
    assert engines[0].received_requests[0].patience_s is None


def test_a_router_without_engines_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one engine"):
        Router([])
