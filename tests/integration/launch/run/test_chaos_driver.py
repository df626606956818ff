"""If this fails, a killed or interrupted command leaves processes, ports and containers behind, or cannot go on."""

from __future__ import annotations

import os
import signal

import pytest

from launch.processes.process_reaper import find_run_processes
from protocol.weights import version_start_number
from tests.support.runs.cluster_runs import MiniRun, MiniRuns, eventually
from tests.support.runs.run_resources import DEADLINE_S, RunResources, kill_command
from tests.support.runs.trajectory_accounting import CheckpointLineage, assert_accounting_balances, read_ledger

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.chaos]

STEPS = 6
NO_EVALUATION = ("--steps", str(STEPS), "--set", "evaluation.tasks_per_family=0")
FAR_FROM_A_CHECKPOINT = ("--set", "checkpoint.every_steps=100")
"""Nothing is kept between step 0 and the last: what later weights sampled is in the journal all the same."""


def versions_by_start(run: MiniRun) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for event in run.events("weights.published"):
        found.setdefault(version_start_number(event["version"]), set()).add(event["version"])
    return found


def test_a_killed_command_leaves_nothing_and_goes_on_where_it_was(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("driver-killed", *NO_EVALUATION)
    run.wait_step(2)
    kill_command(run)

    again = mini_runs.resume("driver-killed")
    summary = again.succeed()
    assert summary["finished"]
    assert summary["steps"] == STEPS == len(read_ledger(run.path))
    assert_accounting_balances(run.path)
    assert run.list_containers() == []
    starts = versions_by_start(run)
    assert set(starts) == {1, 2}
    lineage = CheckpointLineage(run.path)
    assert {version_start_number(version) for version in lineage.step} == {1, 2}, (
        "the second start does not know its past"
    )


def test_a_command_that_is_killed_twice_goes_on_where_it_was(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("driver-killed-twice", *NO_EVALUATION, *FAR_FROM_A_CHECKPOINT)
    for start, step in ((1, 1), (2, 3)):
        run.wait_step(step)
        kill_command(run)
        run = mini_runs.resume("driver-killed-twice")
        run.wait_event("the new start", "run.started", lambda event, n=start: event["writer"] == f"driver-{n + 1}")
    summary = run.succeed()
    assert summary["steps"] == STEPS
    assert_accounting_balances(run.path)
    assert set(versions_by_start(run)) == {1, 2, 3}


def test_one_interrupt_stops_in_order(mini_runs: MiniRuns) -> None:
    """Send SIGINT to the command's whole process group, as a terminal does."""
    run = mini_runs.start("interrupted", *NO_EVALUATION, *FAR_FROM_A_CHECKPOINT)
    run.wait_step(1)
    resources = RunResources(run)
    os.killpg(run.process.pid, signal.SIGINT)
    finished = run.finish(within_s=180)
    assert finished.exit_code == 130
    assert finished.json["exit_code"] == 130
    assert "--resume interrupted" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert run.list_containers() == [], "an orderly stop waits for its containers"
    resources.wait_until_released()
    assert mini_runs.resume("interrupted").succeed()["steps"] == STEPS
    assert_accounting_balances(run.path)


def test_a_second_interrupt_stops_at_once(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("interrupted-twice", *NO_EVALUATION)
    run.wait_step(1)
    resources = RunResources(run)
    os.kill(run.process.pid, signal.SIGINT)
    eventually("word that it stops", lambda: "press Ctrl-C again to stop at once" in run.stderr, 60)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish(within_s=60).exit_code == 130
    resources.wait_until_released()


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("model", signal.SIGINT),
        ("warm_start", signal.SIGINT),
        ("training", signal.SIGINT),
        ("training", signal.SIGTERM),
    ],
    ids=["model", "warm start", "training", "training, by kill"],
)
def test_an_interrupt_before_or_during_training_leaves_nothing(
    mini_runs: MiniRuns, phase: str, number: signal.Signals
) -> None:
    run = mini_runs.start(f"interrupted-{phase}-{number.name}", *NO_EVALUATION, "--seed", "7")
    run.wait_event(phase, "run.phase", lambda event: event["phase"] == phase)
    token = run.run_token()
    if number is signal.SIGINT:  # Ctrl-C reaches everybody in the foreground
        os.killpg(run.process.pid, number)
    else:
        os.kill(run.process.pid, number)
    finished = run.finish(within_s=300)
    assert finished.exit_code == 130, finished.stderr[-3000:]
    assert not find_run_processes(token)
    eventually("the end of every container", lambda: not run.list_containers(), DEADLINE_S + 120)
