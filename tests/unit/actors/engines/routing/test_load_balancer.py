"""If these fail, workers pile up on one engine while others idle, or episodes lose their cached prefix for nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.messages import EngineLoad, EngineState
from actors.engines.routing.load_balancer import LoadBalancer
from protocol.weights import make_version
from tests.support.actors.engine_requests import make_load

TOKENS = 100
SLACK = 4
"""Times a request."""


def placement(engines: int = 2, first: int = 0, lag: int = 0) -> LoadBalancer:
    return LoadBalancer(engines, slack=SLACK, first=first, max_versions_behind=lag)


def test_load_is_counted_in_tokens_and_not_in_requests() -> None:
    """One long history is as much work as many short ones."""
    router = placement()
    assert router.begin_request("long", 1000, 0.0) == 0
    assert [router.begin_request(f"short {number}", TOKENS, 0.0) for number in range(10)] == [1] * 10
    assert router.tokens == [1000, 1000]


def test_load_includes_other_routers_tokens_and_counts_own_tokens_once() -> None:
    router = placement()
    router.begin_request("s", TOKENS, 0.0)
    router.update_load(0, make_load(others=300, own=TOKENS), 0.0)
    router.update_load(1, make_load(others=500), 0.0)
    assert router.tokens == [400, 500]
    router.end_request(0, TOKENS)
    assert router.tokens == [300, 500]


def test_a_session_leaves_its_engine_only_if_another_has_much_less_load() -> None:
    router = placement()
    router.begin_request("s", TOKENS, 0.0)
    router.end_request(0, TOKENS)
    router.update_load(0, make_load(SLACK * TOKENS), 0.0)
    assert router.begin_request("s", TOKENS, 0.0) == 0, "its prefix is cached there"
    router.end_request(0, TOKENS)
    router.update_load(0, make_load(SLACK * TOKENS + 1), 0.0)
    assert (router.begin_request("s", TOKENS, 0.0), router.moved) == (1, 1)


@pytest.mark.parametrize(("paused_s", "engine"), [(0.1, 0), (5.0, 1)])
def test_a_session_stays_during_a_short_pause_of_its_engine_and_leaves_in_a_long_one(
    paused_s: float, engine: int
) -> None:
    router = placement()
    router.begin_request("s", TOKENS, 0.0)
    router.update_load(0, make_load(state=EngineState.UPDATING, paused_s=paused_s), 0.0)
    assert router.begin_request("s", TOKENS, 0.0) == engine
    assert router.has_other_available(1, 0.0) == (engine == 0)


@pytest.mark.parametrize("state", sorted(set(EngineState) - {EngineState.SERVING, EngineState.UPDATING}))
def test_an_engine_that_is_not_serving_gets_no_requests_until_it_serves(state: EngineState) -> None:
    router = placement()
    router.update_load(0, make_load(state=state), 0.0)
    assert [router.begin_request(f"s{number}", TOKENS, 0.0) for number in range(3)] == [1, 1, 1]
    router.update_load(0, make_load(), 1.0)
    assert router.begin_request("new", TOKENS, 1.0) == 0


def test_if_no_engine_serves_a_returning_one_is_preferred_to_a_failed_one() -> None:
    router = placement(3)
    router.mark_failed(0, 0.0)
    for engine in (1, 2):
        router.update_load(engine, make_load(others=engine, state=EngineState.OFFLOADED), 0.0)
    assert (router.count_available(0.0), router.begin_request("s", TOKENS, 0.0)) == (0, 1)
    for engine in (1, 2):
        router.mark_failed(engine, 0.0)
    assert router.begin_request("t", TOKENS, 0.0) == 0


def test_new_sessions_go_to_the_newest_weights_and_old_ones_stay() -> None:
    router = placement(3)
    assert router.begin_request("old", TOKENS, 0.0) == 0
    for engine in range(3):
        router.update_load(engine, make_load(version=2 if engine == 2 else 1), 0.0)
    assert router.begin_request("old", TOKENS, 0.0) == 0
    assert [router.begin_request(f"new {number}", TOKENS, 0.0) for number in range(3)] == [2, 2, 2]


def test_an_engine_with_too_old_weights_gets_no_requests_until_it_is_updated() -> None:
    """It could not load, say: what it samples would get no loss."""
    router = placement(lag=2)
    assert router.begin_request("s", TOKENS, 0.0) == 0
    router.update_load(0, make_load(version=1), 0.0)
    router.update_load(1, make_load(version=3, others=900, queued=300), 0.0)
    assert [router.begin_request(each, TOKENS, 0.0) for each in ("s", "new")] == [0, 0], (
        "two versions are within the bound"
    )
    router.update_load(1, make_load(version=4, others=900, queued=300), 0.0)
    assert [router.begin_request(each, TOKENS, 0.0) for each in ("s", "newer")] == [1, 1]
    router.update_load(0, make_load(version=4), 0.0)
    assert router.begin_request("newest", TOKENS, 0.0) == 0


def test_a_stale_engine_is_used_if_it_is_the_only_one_and_preferred_to_a_failed_one() -> None:
    router = placement(3, lag=2)
    router.update_load(0, make_load(version=1), 0.0)
    router.update_load(1, make_load(version=9, state=EngineState.RESTARTING), 0.0)
    router.mark_failed(2, 0.0)
    assert (router.begin_request("s", TOKENS, 0.0), router.count_available(0.0)) == (0, 1)
    router.update_load(1, make_load(version=9), 1.0)
    assert (router.begin_request("s", TOKENS, 1.0), router.count_available(1.0)) == (1, 2)


def test_after_a_run_restart_engines_that_wait_for_their_first_weights_are_not_stale() -> None:
    """The first that has them would get all of the load."""
    router = placement(lag=1)
    assert router.begin_request("s", TOKENS, 0.0) == 0
    router.update_load(0, make_load(version=make_version(1, 7)), 0.0)
    router.update_load(1, make_load(version=make_version(2, 1)), 0.0)
    assert router.begin_request("s", TOKENS, 0.0) == 0


@pytest.mark.parametrize(
    "newest",
    [make_load(version=2, others=200, queued=100), make_load(version=2, others=SLACK * TOKENS + 1)],
    ids=["queue", "load"],
)
def test_a_new_session_does_not_wait_for_a_full_engine_with_the_newest_weights(newest: EngineLoad) -> None:
    router = placement()
    router.update_load(0, make_load(version=1), 0.0)
    router.update_load(1, newest, 0.0)
    assert router.begin_request("new", TOKENS, 0.0) == 0


def test_an_outdated_load_report_is_ignored() -> None:
    router = placement()
    router.update_load(0, make_load(others=500, state=EngineState.RESTARTING), 0.0)
    assert router.begin_request("s", TOKENS, 4.9) == 1
    assert router.begin_request("t", TOKENS, 5.0) == 0


@dataclass
class BalancerModel:
    """A hand-written model of a router's knowledge."""

    engines: int
    now: float = 0.0
    own: Counter[int] = field(default_factory=Counter)
    reports: dict[int, tuple[EngineLoad, float]] = field(default_factory=dict)
    avoided: dict[int, float] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    under_way: list[tuple[int, int]] = field(default_factory=list)

    def reported_load(self, engine: int) -> EngineLoad:
        load, at = self.reports.get(engine, (make_load(), -99.0))
        return load if self.now < at + 5.0 else make_load()

    def trouble(self, engine: int) -> int:
        load = self.reported_load(engine)
        blinks = load.state is EngineState.UPDATING and load.paused_s < 1.0
        if self.now < self.avoided.get(engine, -99.0) + 10.0:
            return 2
        return 0 if blinks or load.state is EngineState.SERVING else 1

    def tokens(self, engine: int) -> int:
        return self.reported_load(engine).tokens.of_others + self.own[engine]

    def assert_begun_well(self, session: str, tokens: int, engine: int) -> None:
        least_trouble = min(map(self.trouble, range(self.engines)))
        least = min(self.tokens(each) for each in range(self.engines) if self.trouble(each) == least_trouble)

        def does(engine: int) -> bool:
            return self.trouble(engine) == least_trouble and self.tokens(engine) <= least + SLACK * tokens

        home = self.homes.get(session)
        assert does(engine)
        assert home is None or (engine == home) == does(home), "it moves for a reason, and then always"


_LOADS = st.builds(
    make_load,
    st.integers(0, 2000),
    state=st.sampled_from([EngineState.SERVING] * 3 + [EngineState.UPDATING, EngineState.RESTARTING]),
    paused_s=st.sampled_from([0.0, 3.0]),
    version=st.integers(1, 3),
)
_EVENTS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, 5), st.integers(1, 400)),
    st.tuples(st.just("end"), st.integers(0, 9), st.none()),
    st.tuples(st.just("fail"), st.integers(0, 3), st.none()),
    st.tuples(st.just("hear"), st.integers(0, 3), _LOADS),
    st.tuples(st.just("wait"), st.integers(0, 6), st.none()),
)


@given(engines=st.integers(1, 4), events=st.lists(_EVENTS, max_size=60))
def test_an_engine_is_always_chosen_and_sessions_move_only_for_a_reason(engines: int, events: list) -> None:
    router, model = placement(engines), BalancerModel(engines)
    for kind, number, what in events:
        if kind == "begin":
            session = f"s{number}"
            engine = router.begin_request(session, what, model.now)
            model.assert_begun_well(session, what, engine)
            model.homes[session] = engine
            model.own[engine] += what
            model.under_way.append((engine, what))
        elif kind == "end" and model.under_way:
            engine, tokens = model.under_way.pop(number % len(model.under_way))
            model.own[engine] -= tokens
            router.end_request(engine, tokens)
        elif kind == "fail":
            model.avoided[number % engines] = model.now
            router.mark_failed(number % engines, model.now)
        elif kind == "hear":
            model.reports[number % engines] = (what, model.now)
            router.update_load(number % engines, what, model.now)
        elif kind == "wait":
            model.now += number
    at_hand = [model.trouble(engine) == 0 for engine in range(engines)]
    assert router.count_available(model.now) == sum(at_hand)
    assert router.tokens == [model.tokens(engine) for engine in range(engines)]
    assert sum(router.in_flight) == len(model.under_way)


@given(
    engines=st.integers(2, 5),
    routers=st.integers(2, 4),
    windows=st.lists(st.lists(st.integers(0, 3), max_size=24), min_size=1, max_size=6),
)
def test_routers_that_receive_load_reports_balance_engines_evenly(
    engines: int, routers: int, windows: list[list[int]]
) -> None:
    """Between two words of an engine they cannot know of each other: by that much its load may be off, and no more."""
    balancers = [placement(engines, first=number % engines) for number in range(routers)]
    had = [Counter[int]() for _ in balancers]
    most_unheard = 0
    for window in windows:
        begun = Counter(number % routers for number in window)
        most_unheard = max([most_unheard, *begun.values()])
        for number in window:
            router = number % routers
            session = f"{sum(had[router].values())}"
            had[router][balancers[router].begin_request(session, TOKENS, 0.0)] += TOKENS
        totals = [sum(each[engine] for each in had) for engine in range(engines)]
        assert max(totals) - min(totals) <= TOKENS * (1 + (routers - 1) * most_unheard)
        for own, router in zip(had, balancers, strict=True):
            for engine, total in enumerate(totals):
                router.update_load(engine, make_load(others=total - own[engine], own=own[engine]), 0.0)


def test_a_second_router_avoids_the_engine_filled_by_the_first() -> None:
    first, second = placement(), placement()
    assert [first.begin_request("one session", TOKENS, 0.0) for _ in range(SLACK)] == [0] * SLACK
    for engine, tokens in enumerate(first.tokens):
        second.update_load(engine, make_load(others=tokens), 1.0)
    assert [second.begin_request(f"new {number}", TOKENS, 1.0) for number in range(SLACK)] == [1] * SLACK


def test_the_number_of_remembered_sessions_is_limited() -> None:
    balancer = LoadBalancer(3, max_sessions=10)
    for number in range(50):
        balancer.begin_request(str(number), TOKENS, 0.0)
    assert balancer.sessions == 10
