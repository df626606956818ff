"""If this fails, learner and engine cannot share a device, or a run hides that rollout waits for it.

Without a GPU no memory is saved by it: the offloads are real, and so are the deaths in them.
"""

from __future__ import annotations

import signal

import pytest

from tests.support.runs.cluster_runs import Event, MiniRun, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances, token_staleness

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

SHARED = ("--mode", "sync", "--set", "cluster.placement=colocated", "--set", "evaluation.tasks_per_family=0")


def offload_events(run: MiniRun) -> list[Event]:
    """Return the engine's offloads and what ended them, in order."""
    return run.events("engine.offloaded", "engine.onloaded")


def test_learner_and_engine_alternate_on_the_device_and_the_summary_reports_the_cost(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("shared", *SHARED)
    summary = run.succeed()
    assert (summary["steps"], summary["staleness"]["max"]) == (3, 0)
    events = offload_events(run)
    assert [event["kind"] for event in events] == ["engine.offloaded", "engine.onloaded"] * 3
    steps = run.events("learner.step")
    for step, (begun, ended) in zip(steps, zip(events[::2], events[1::2], strict=True), strict=True):
        assert begun["t"] < step["t"] < ended["t"], "a step was taken while the engine had the device"
        assert ended["new"]
        assert ended["why"] == ""
    (measured,) = run.events("parity.measured")
    assert measured["k3"] < measured["limit"]
    assert events[0]["t"] < measured["t"] < steps[0]["t"], "the learner computed before the engine was offloaded"
    turned = [event for event in run.events("episode.turn") if event["sampled"]]
    assert not any(
        a["t"] < event["t"] < b["t"] for event in turned for a, b in zip(events[::2], events[1::2], strict=True)
    )
    colocation = summary["colocation"]
    assert (colocation["placement"], colocation["offloads"]) == ("colocated", 3)
    assert colocation["blocked_s"] == pytest.approx(sum(event["offloaded_s"] for event in events[1::2]), abs=0.01)
    assert 0 < colocation["blocked_share"] < 1
    assert summary["weights"]["pause_ms_max"] == 0, "time offloaded is no pause for a load"
    assert summary["weights"]["versions"] == 3
    assert "cluster.placement = colocated" in (run.path / "report.html").read_text()
    assert_accounting_balances(run.path)


@pytest.mark.chaos
def test_an_offloaded_engine_returns_after_the_deaths_of_its_server_and_the_learner(mini_runs: MiniRuns) -> None:
    """The server comes back with the memory; the learner has that until its replacement has published."""
    run = mini_runs.start("shared-deaths", *SHARED)
    run.wait_event("the first rollout", "run.phase", lambda event: event["phase"] == "training")
    run.kill_process("ray::LearnerRank", signal.SIGSTOP)  # so that the engine stays offloaded
    run.wait_event("an offload", "engine.offloaded")
    run.kill_server()
    run.wait_event("the server's death", "engine.died")
    run.kill_process("ray::LearnerRank")
    summary = run.succeed()
    assert (summary["steps"], summary["staleness"]["max"]) == (3, 0)
    events = run.events("engine.offloaded", "engine.died", "learner.restarted", "engine.onloaded", "engine.restarted")
    first = ["engine.offloaded", "engine.died", "learner.restarted", "engine.onloaded", "engine.restarted"]
    assert [event["kind"] for event in events] == [*first, *["engine.offloaded", "engine.onloaded"] * 3]
    assert_accounting_balances(run.path)
    staleness, _ = token_staleness(run.path)
    assert max(staleness) == 0
