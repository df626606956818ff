"""If these fail, a simulation says something about longshore that a run would not do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from launch.simulate.__main__ import COMMAND
from launch.simulate.episode_workload import EpisodePlan
from launch.simulate.scenario import (
    CURVES,
    EpisodeModel,
    Scenario,
    SimulationMatrix,
    find_scenario,
    read_scenario,
    scenario_names,
)
from launch.simulate.simulated_cluster import (
    UNBOUNDED,
    NodeFault,
    SimulatedCluster,
    SimulationResult,
    SimulationSettings,
    SimulationStalledError,
)
from launch.simulate.simulated_engines import SimulatedEngine, SimulatedRequest, speed_by_load
from launch.simulate.simulation_page import write_simulation
from launch.simulate.simulation_rows import SimulationRunner, best_rows, tokens_per_s
from launch.simulate.simulation_table import table_lines
from launch.simulate.token_accounting import ConsumedTrajectory, TokenAccounting
from launch.simulate.virtual_clock import VirtualClock
from protocol.errors import UserError
from protocol.staleness import AdmissionMode, StaleTokenPolicy
from protocol.trajectory import DropReason, GroupId, RolloutRequest

ROW_KEYS = [
    *(
        "nodes",
        "mode",
        "policy",
        "max_staleness",
        "in_flight",
        "trained_tokens_per_s",
        "vs_sync",
        "vs_unbounded",
        "staleness_mean",
    ),
    *("staleness_max", "masked_share", "trained_share_by_decile", "learner_idle", "engine_idle", "dropped"),
    *("vs_faultless", "faults"),
]


def small(*, faults: float = 0.0, steps: int = 8) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "test",
            "episode": {"turns": [2, 5]},
            "engine": {"per_node": 0.5},
            "learner": {"groups_per_step": 6, "group_size": 4, "steps": steps, "warm_up": 2},
            "faults": {"nodes_per_hour": faults, "repair_s": 120.0},
        }
    )


def run(
    scenario: Scenario, policy: StaleTokenPolicy = StaleTokenPolicy.MASK, max_staleness: int = 1, seed: int = 0
) -> SimulationResult:
    return SimulationRunner(scenario, seed).simulate(
        SimulationSettings(4, AdmissionMode.ASYNC, policy, max_staleness, 48)
    )


def begun(scenario: Scenario) -> SimulatedCluster:
    """A world at its first moment."""
    cell = SimulationSettings(4, AdmissionMode.ASYNC, StaleTokenPolicy.MASK, 1, 48)
    world = SimulatedCluster(scenario, cell, SimulationRunner(scenario, 0).build_workload(), 0, None)
    world.rollout.start()
    world.learner.start(world.rollout)
    return world


def once(_: SimulationSettings) -> None:
    """Nobody listens."""


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    scenario, matrix = small(faults=0.3), SimulationMatrix(nodes=(4,), in_flight=(24, 48), max_staleness=(2,))
    found: list[list[bytes]] = []
    for number, seed in enumerate((7, 7, 8)):
        rows = SimulationRunner(scenario, seed).run_matrix(matrix, 1, once)
        folder = tmp_path / str(number)
        folder.mkdir()
        write_simulation(folder, scenario, rows, {"rows": [row.as_json() for row in rows]}, "command")
        found.append([(folder / name).read_bytes() for name in ("rows.json", "index.html")])
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert all(list(row) == ROW_KEYS for row in orjson.loads(found[0][0])["rows"])


class Stated(SimulationRunner):
    """Simulations whose outcomes are stated instead of simulated."""

    def simulate(self, cell: SimulationSettings) -> SimulationResult:
        if cell.mode is AdmissionMode.SYNC:
            return outcome_of({8: 10.0, 16: 7.0}[cell.in_flight])
        if cell.max_staleness == UNBOUNDED:
            return outcome_of({8: 21.0, 16: 22.0}[cell.in_flight])
        return by_hand() if cell.faults else outcome_of(20.0)


def consumed(trained: int, masked: int, steps: int) -> ConsumedTrajectory:
    """``trained`` tokens of one staleness and ``masked`` ones that are older."""
    staleness, tokens = np.array([steps, 9], np.int32), np.array([trained, masked], np.int64)
    return ConsumedTrajectory(staleness, tokens, np.array([True, False]), np.array([0, 1], np.int32), seconds=1.0)


def outcome_of(tokens_per_s: float) -> SimulationResult:
    account = TokenAccounting(warm_up=0)
    account.end_step(1, 10.0, [consumed(int(10 * tokens_per_s), 0, 0)], 0, 0)
    return SimulationResult(account, 0.0, {}, {}, [])


def by_hand() -> SimulationResult:
    """Ten trajectories, the longest first: 10 · n tokens sampled and n · n trained; those of odd n a step late, the
    third two."""
    account = TokenAccounting(warm_up=1)
    account.add_wait(7.0)
    account.end_step(1, 10.0, [consumed(1000, 0, 0)], 0, 0)
    account.end_warm_up(0.0, {})
    uses = [consumed(n * n, 10 * n - n * n, 2 if n == 3 else n % 2) for n in range(10, 0, -1)]
    for step in (2, 3):
        account.add_wait(step)
        account.end_step(step, 10.0 * step, uses[5 * step - 10 : 5 * step - 5], 0, 0)
    return SimulationResult(
        account, 0.125, {"all_stale": 3}, {}, [NodeFault(1, 12.3456, 2, True, 3, 40, repaired_s=15.0)]
    )


def test_the_figures_of_a_row_match_a_calculation_by_hand() -> None:
    matrix = SimulationMatrix(nodes=(4,), in_flight=(8, 16), max_staleness=(2,), policy=(StaleTokenPolicy.MASK,))
    _, row = Stated(small(faults=1.0), 0).run_matrix(matrix, 1, once)
    assert row.as_json() == {
        "nodes": 4,
        "mode": "async",
        "policy": "mask",
        "max_staleness": 2,
        "in_flight": 16,
        "trained_tokens_per_s": 19.25,  # 385 in 20 s
        "vs_sync": 1.925,  # whose best is 10
        "vs_unbounded": 0.875,  # 22
        "staleness_mean": 0.4519,  # (1 + 2 * 9 + 25 + 49 + 81) / 385
        "staleness_max": 2,
        "masked_share": 0.3,  # 165 of 550
        "trained_share_by_decile": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        "learner_idle": 0.25,  # 2 s and 3 s of 20 s
        "engine_idle": 0.125,
        "dropped": {"all_stale": 3},
        "vs_faultless": 0.9625,  # 20
        "faults": [{"node": 1, "at_s": 12.346, "away_s": 2.654, "episodes": 2, "requests": 3, "tokens": 40}],
    }


def test_episodes_are_as_long_as_the_scenario_says() -> None:
    """The median, the 95th percentile at four medians, and none beyond the cut at twelve."""
    scenario = read_scenario(find_scenario("scale"))
    model, workload = scenario.episode, SimulationRunner(scenario, 0).build_workload()
    requests = (RolloutRequest("run", GroupId(n // 4), n % 4, 4, "task", seed=n) for n in range(10_000))
    seconds = [seconds_of(workload.plan_episode(rollout_request)) for rollout_request in requests]
    median, p95 = np.quantile(seconds, [0.5, 0.95])
    assert (model.p95_over_median, model.cut_over_median) == (4.0, 12.0)
    assert median == pytest.approx(model.median_s, rel=0.05)
    assert p95 == pytest.approx(4 * model.median_s, rel=0.05)
    assert max(seconds) == pytest.approx(12 * model.median_s)


def seconds_of(plan: EpisodePlan) -> float:
    return plan.acquire_s + sum(turn.generate_s + turn.tool_s for turn in plan.turns) + plan.grade_s


@pytest.mark.parametrize("policy", StaleTokenPolicy)
def test_no_policy_trains_a_token_above_the_bound(policy: StaleTokenPolicy) -> None:
    outcome = run(small(), policy)
    assert len(outcome.account.tokens_by_staleness()) <= 2
    assert len(outcome.account.samples) == 8


def test_each_staleness_policy_pays_for_the_bound_with_tokens_or_with_time() -> None:
    by_policy = {policy: run(small(steps=12), policy).account for policy in StaleTokenPolicy}
    mask, wait = by_policy[StaleTokenPolicy.MASK], by_policy[StaleTokenPolicy.WAIT]
    lost = {policy: account.sampled - account.trained for policy, account in by_policy.items()}
    assert lost[StaleTokenPolicy.DROP] > lost[StaleTokenPolicy.MASK] > 0
    assert lost[StaleTokenPolicy.WAIT] == 0, "wait loses no token, whatever its length"
    assert wait.seconds > mask.seconds


def test_a_node_that_dies_costs_its_episodes_and_nothing_else() -> None:
    outcome = run(small(faults=1.0, steps=12), max_staleness=4)
    assert outcome.faults
    assert sum(fault.episodes for fault in outcome.faults) > 0
    assert len(outcome.account.samples) == 12


def test_the_cost_of_faults_is_reported_against_the_same_run_without_faults() -> None:
    matrix, settings = SimulationMatrix(nodes=(4,), in_flight=(24, 48), max_staleness=(2,)), list[SimulationSettings]()
    rows = SimulationRunner(small(faults=1.0), 3).run_matrix(matrix, 1, settings.append)
    calm = SimulationRunner(small(), 3).run_matrix(matrix, 1, once)
    for row, other in zip(rows, calm, strict=True):
        assert row.result.faults
        assert row.vs_faultless == row.trained_tokens_per_s / other.trained_tokens_per_s < 1
        (first, *_), output = row.result.faults, row.as_json()
        assert output["vs_faultless"] == round(row.vs_faultless, 4)
        assert output["faults"][0] == {
            "node": first.node,
            "at_s": round(first.at_s, 3),
            "away_s": 120.0,
            "episodes": first.episodes,
            "requests": first.requests,
            "tokens": first.tokens,
        }
        assert (other.vs_faultless, other.result.faults) == (1.0, [])
    assert sorted(cell.in_flight for cell in settings if not cell.faults) == [24, 48]
    printed = table_lines(rows)
    assert sum(line.startswith("staleness ≤ 2") for line in printed) == len(
        best_rows(rows)["staleness ≤ 2"].result.faults
    )
    assert len(table_lines(calm)) == 1 + len(calm)


def test_no_figure_includes_the_warm_up() -> None:
    whole = small()
    whole = whole.model_copy(update={"learner": whole.learner.model_copy(update={"warm_up": 0})})
    measured, all_of_it = run(small()), run(whole)
    assert 0 < sum(measured.dropped.values()) < sum(all_of_it.dropped.values())
    account = TokenAccounting(warm_up=1)
    tokens = ConsumedTrajectory(*(np.array([0]), np.array([9]), np.array([True]), np.array([0])), seconds=1.0)
    account.end_step(1, 10.0, [tokens], 0, 0)
    account.end_warm_up(4.0, {DropReason.ZERO_VARIANCE: 3})
    account.end_step(2, 20.0, [tokens], 0, 0)
    assert account.engine_idle(6.0, engines=2) == 2.0 / (2 * 10.0)
    dropped = {DropReason.ZERO_VARIANCE: 5, DropReason.ALL_STALE: 1}
    assert account.count_dropped(dropped) == {"all_stale": 1, "zero_variance": 2}


def test_a_batch_without_a_token_to_train_counts_as_not_trained() -> None:
    """Dropped tokens equal those that the shares by length count as untrained, also where no step was made."""
    learner = {"groups_per_step": 1, "group_size": 2, "steps": 12, "warm_up": 2, "step_s": 30.0}
    episode = {"turns": [2, 5], "p95_over_median": 6.0}
    scenario = Scenario.model_validate({"name": "test", "episode": episode, "learner": learner})
    cell = SimulationSettings(4, AdmissionMode.ASYNC, StaleTokenPolicy.DROP, 1, 16)
    outcome = SimulationRunner(scenario, 1).simulate(cell)
    used = outcome.account.used
    assert len(used) == 10 * 2 + 2, "one batch was passed over"
    assert outcome.dropped["all_stale"] == sum(not use.trained for use in used) == 2


def test_of_two_attempts_at_an_episode_the_first_to_arrive_is_trained() -> None:
    rollout = begun(small()).rollout
    worker = rollout.workers[0]
    first = next(iter(worker.episodes))
    second = replace(first, rollout_request=replace(first.rollout_request, attempt=1))
    worker.episodes[second] = None
    rollout.deliver(first)
    rollout.deliver(second)
    assert rollout.arrived == {first.rollout_request.trajectory_id: first}


@pytest.mark.slow
def test_a_thousand_nodes_reach_95_percent_of_unbounded_speed_under_the_staleness_bound() -> None:
    """With a staleness bound of 4 and the best number in flight: 0.95 of unbounded async, whose best is at either, and
    no length trained far less than another."""
    runs = SimulationRunner(read_scenario(find_scenario("scale")), seed=0)
    few, many = (
        SimulationSettings(1024, AdmissionMode.ASYNC, StaleTokenPolicy.MASK, 4, in_flight) for in_flight in (1024, 1536)
    )
    unbounded = max(tokens_per_s(runs.simulate(cell.without_staleness_bound)) for cell in (few, many))
    masked = runs.simulate(many)
    assert tokens_per_s(masked) >= 0.95 * unbounded
    shares = masked.account.trained_share_by_decile()
    assert min(shares) >= 0.9 * max(shares)


def test_a_misspelled_run_gets_a_suggestion_like_a_misspelled_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "terminal-7").mkdir(parents=True)
    (tmp_path / "runs" / "terminal-7" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="did you mean 'terminal-7'"):
        find_scenario("terminl-7")


def test_every_named_scenario_can_be_read() -> None:
    assert scenario_names() == sorted(scenario_names())
    for name in scenario_names():
        assert read_scenario(find_scenario(name)).about


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("smal", "did you mean 'small'"),
        ("nowhere/file.toml", "no such scenario file"),
        ("small --fault-rate 7", "argument --fault-rate: must be at most 1"),
        ("small --max-staleness 0", "in modes other than sync tokens are 1 steps old"),
        ("small --nodes 0", "at least 1"),
        (
            "small --mode asynk",
            "argument --mode: must be 'sync', 'one_step_off' or 'async', not 'asynk'",
        ),
        ("small --nodes 8,", "argument --nodes: must be a valid integer.*, not ''"),
        ("small --max-staleness 4,1000000", "--max-staleness 1000000 is too large"),
        ("small --write-trace x.json", "needs a run to replay"),
    ],
)
def test_a_simulation_with_invalid_arguments_is_refused(
    arguments: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["simulate", *arguments.split()])
    with pytest.raises(UserError, match=says):
        COMMAND.call()


def test_a_scenario_file_with_a_wrong_key_says_which(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[learner]\nstep = 3\n")
    with pytest.raises(UserError, match=r"unknown key 'learner.step'; did you mean 'learner.steps?'?"):
        read_scenario(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[matrix]\nmax_staleness = []", "matrix.max_staleness"),
        ("[matrix]\nmode = []", "matrix.mode"),
        ('name = "../elsewhere"', "name"),
        ("[learner]\nsteps = 100000", r"12,800,000 trajectories.*at most 10,000,000"),
        ("[episode]\nturns = [1, 1000000]", "episode.turns"),
        ("[episode]\nturns = [8, 2]", r"episode.turns = \[8, 2\].*write \[2, 8\]"),
    ],
)
def test_an_empty_or_contradictory_scenario_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        read_scenario(path)


@pytest.mark.slow
def test_a_stalled_simulation_says_where_it_stalled() -> None:
    """Every group has one reward, and is dropped for it."""
    scenario = small(steps=3).model_copy(update={"episode": EpisodeModel(median_s=600, reward=(1e9, 1e-9))})
    with pytest.raises(
        SimulationStalledError,
        match=r"^async, mask, staleness ≤ 1, 4 nodes, 48 in flight: step 0 of 3.* groups dropped",
    ):
        run(scenario)


class Owner:
    def __init__(self) -> None:
        self.done: list[SimulatedRequest] = []
        self.gone: list[SimulatedRequest] = []

    def request_sampled(self, request: SimulatedRequest) -> None:
        self.done.append(request)

    def request_refused(self, request: SimulatedRequest) -> None:
        self.gone.append(request)


def test_an_engine_slows_down_with_its_load_and_records_the_weights_of_each_token() -> None:
    clock, owner = VirtualClock(), Owner()
    engine = SimulatedEngine(clock, speed_by_load(((1, 100.0), (2, 100.0)), 1))
    engine.submit(SimulatedRequest(owner, 100, 10.0))
    engine.submit(SimulatedRequest(owner, 100, 10.0))
    clock.schedule(5.0, lambda _: engine.load_weights(7, 1.0))
    clock.run(1000.0)
    first, second = owner.done
    assert [tuple(span) for span in first.spans] == [(0, 50), (7, 50)]
    assert [tuple(span) for span in second.spans] == [(0, 25), (7, 75)]
    assert clock.now == 21.0, "half the speed for the second, and the pause"


def test_a_dead_engine_returns_its_requests_with_the_tokens_sampled_so_far() -> None:
    clock, owner = VirtualClock(), Owner()
    engine = SimulatedEngine(clock, speed_by_load(CURVES["recorded"], 1))
    engine.submit(SimulatedRequest(owner, 100, 10.0))
    clock.schedule(4.0, lambda _: engine.die())
    clock.run(1000.0)
    assert owner.done == []
    assert [sum(span.tokens for span in request.spans) for request in owner.gone] == [40]
    engine.submit(SimulatedRequest(owner, 1, 1.0))
    assert len(owner.gone) == 2


def test_the_idle_time_of_an_engine_survives_its_death() -> None:
    clock = VirtualClock()
    engine = SimulatedEngine(clock, speed_by_load(CURVES["recorded"], 1))
    clock.schedule(100.0, lambda _: engine.die())
    clock.schedule(130.0, lambda _: engine.revive(1))
    clock.schedule(150.0, lambda _: engine.submit(SimulatedRequest(Owner(), 1, 10.0)))
    clock.run(1000.0)
    assert clock.now == 160.0
    assert engine.idle_s() == 150.0, "that it was dead is no work either"


def test_a_cancelled_request_keeps_the_count_of_its_sampled_tokens() -> None:
    clock, owner = VirtualClock(), Owner()
    engine, request = SimulatedEngine(clock, speed_by_load(CURVES["recorded"], 1)), SimulatedRequest(owner, 100, 10.0)
    engine.submit(request)
    clock.schedule(3.0, lambda _: engine.cancel(request))
    clock.run(1000.0)
    assert (request.sampled, owner.done, owner.gone) == (30, [], [])


def test_tokens_lost_with_a_node_include_those_of_the_turn_under_way() -> None:
    world = begun(small())
    worker = world.rollout.workers[1]
    world.clock.schedule(40.0, lambda _: world.clock.stop())
    world.clock.run(100.0)
    turns = [span.tokens for episode in worker.episodes for _, span in episode.spans]
    under_way = [episode.request for episode in worker.episodes if episode.request is not None]
    assert under_way
    world.rollout.kill_node(1)
    assert all(request.sampled for request in under_way)
    assert world.rollout.lost_tokens == sum(turns) + sum(request.sampled for request in under_way)


def test_weights_that_arrive_during_an_instantaneous_request_find_it_sampled() -> None:
    """A recorded turn may have taken nothing."""
    clock, owner = VirtualClock(), Owner()
    engine = SimulatedEngine(clock, speed_by_load(((1, 100.0), (2, 100.0)), 1))
    request = SimulatedRequest(owner, 3, 0.0)
    engine.submit(request)
    engine.load_weights(1, 0.0)
    clock.run(1.0)
    assert owner.done == [request]
    assert [(span.version, span.tokens) for span in request.spans] == [(0, 3)]
