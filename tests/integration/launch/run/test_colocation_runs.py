"""If this fails, learner and engine cannot take turns on one device, or a run hides that rollout waits for it.

Without a GPU no memory is saved by it: the turns are real, and so are the deaths in them.
"""

from __future__ import annotations

import signal

import pytest

from tests.support.cluster_runs import Event, MiniRun, MiniRuns
from tests.support.trajectory_accounting import assert_accounting_balances, token_ages

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

SHARED = ("--mode", "sync", "--set", "cluster.placement=colocated", "--set", "evaluation.tasks_per_family=0")


def turns(run: MiniRun) -> list[Event]:
    """Both ends of each of the learner's turns, in order."""
    return run.events("engine.offloaded", "engine.onloaded")


def test_learner_and_engine_take_turns_and_the_summary_says_what_it_cost(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("shared", *SHARED)
    summary = run.succeed()
    assert (summary["steps"], summary["staleness"]["max"]) == (3, 0)
    told = turns(run)
    assert [event["kind"] for event in told] == ["engine.offloaded", "engine.onloaded"] * 3
    steps = run.events("learner.step")
    for step, (begun, ended) in zip(steps, zip(told[::2], told[1::2], strict=True), strict=True):
        assert begun["t"] < step["t"] < ended["t"], "a step was taken while the engine had the device"
        assert ended["new"]
        assert ended["why"] == ""
    (probed,) = run.events("parity.measured")
    assert probed["k3"] < probed["limit"]
    assert told[0]["t"] < probed["t"] < steps[0]["t"], "the learner computed in the engine's turn"
    turned = [event for event in run.events("episode.turn") if event["sampled"]]
    assert not any(a["t"] < event["t"] < b["t"] for event in turned for a, b in zip(told[::2], told[1::2], strict=True))
    placement = summary["placement"]
    assert (placement["kind"], placement["turns"]) == ("colocated", 3)
    assert placement["blocked_s"] == pytest.approx(sum(event["offloaded_s"] for event in told[1::2]), abs=0.01)
    assert 0 < placement["blocked_share"] < 1
    assert summary["weights"]["pause_ms_max"] == 0, "what the turn blocks is no pause for a load"
    assert summary["weights"]["pushes"] == 3
    assert "cluster.placement = colocated" in (run.path / "report.html").read_text()
    assert_accounting_balances(run.path)


@pytest.mark.chaos
def test_deaths_in_the_learners_turn_leave_no_engine_aside(mini_runs: MiniRuns) -> None:
    """The server comes back when the turn is over; the learner has it until another is there and has published."""
    run = mini_runs.start("shared-deaths", *SHARED)
    run.wait_event("the first rollout", "run.phase", lambda event: event["phase"] == "training")
    run.kill_one("ray::LearnerRank", signal.SIGSTOP)  # so that its turn lasts
    run.wait_event("the learner's turn", "engine.offloaded")
    run.kill_server()
    run.wait_event("the server's death", "engine.died")
    run.kill_one("ray::LearnerRank")
    summary = run.succeed()
    assert (summary["steps"], summary["staleness"]["max"]) == (3, 0)
    told = run.events("engine.offloaded", "engine.died", "learner.restarted", "engine.onloaded", "engine.restarted")
    first = ["engine.offloaded", "engine.died", "learner.restarted", "engine.onloaded", "engine.restarted"]
    assert [event["kind"] for event in told] == [*first, *["engine.offloaded", "engine.onloaded"] * 3]
    assert_accounting_balances(run.path)
    ages, _ = token_ages(run.path)
    assert max(ages) == 0
