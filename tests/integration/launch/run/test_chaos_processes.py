"""If this fails, one dead process costs a user the run, or data that was acknowledged."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.engine import SGLangEngine
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from learner.rank import LearnerRank
from tests.support.runs.cluster_runs import Event, MiniRun, MiniRuns, eventually
from tests.support.runs.trajectory_accounting import assert_accounting_balances, read_ledger

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.chaos]

WORKER, BUFFER, LEARNER, SCHEDULER, ENGINE = (
    f"ray::{actor.__name__}" for actor in (RolloutWorker, TrajectoryBuffer, LearnerRank, RolloutScheduler, SGLangEngine)
)
SERVER = "sglang server"
SERVER_REAPER = "actors/engines/server/process_reaper.py"
"""A server that starts dies with it; it has no name of its own yet."""


def names_death(what: str, pid: int) -> Callable[[Event], bool]:
    """Whether an event says that this process, or this kind of actor, died."""
    kinds = {WORKER: "worker-", BUFFER: "buffer", LEARNER: "learner-", SCHEDULER: "scheduler", ENGINE: "engine-"}

    def holds(event: Event) -> bool:
        if event["kind"] == "engine.died":
            return what == SERVER and event["pid"] == pid
        return what != SERVER and kinds[what] in event["what"] and event.get("pid", pid) == pid

    return holds


def kill_in_turn(run: MiniRun, what: list[str]) -> None:
    """Kill each once the run has got over the death before: it takes a step, and all of its processes are back."""
    step = run.wait_step(1)["step"]
    for each in what:
        pid = run.kill_server() if each == SERVER else run.kill_process(each)
        holds = names_death(each, pid)
        kind = "engine.died" if each == SERVER else "process.died"
        if each != LEARNER:
            run.wait_event(f"word of the death of {each}", kind, holds)
        step = max(event["step"] for event in run.events("learner.step"))
        run.wait_event(
            f"a step after the death of {each}",
            "learner.step",
            lambda event, past=step: event["step"] > past,
        )
        if each == LEARNER:
            run.wait_event("word of the learner's death", kind, holds)


def assert_survived(run: MiniRun, summary: dict[str, Any], steps: int) -> None:
    assert summary["finished"]
    assert summary["steps"] == steps == len(read_ledger(run.path))
    journal = assert_accounting_balances(run.path)
    assert journal.acknowledged == summary["trajectories"]["acknowledged"]
    assert run.list_containers() == []
    assert summary["staleness"]["max"] <= summary["staleness"]["max_staleness"]


def test_a_run_survives_the_death_of_worker_server_buffer_and_learner(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("killed", "--steps", "16", "--set", "evaluation.tasks_per_family=0")
    kill_in_turn(run, [WORKER, SERVER, BUFFER, LEARNER])
    assert_survived(run, run.succeed(), 16)
    assert run.events("engine.restarted")
    assert run.events("learner.restarted")


def test_a_run_survives_deaths_before_its_first_checkpoint(mini_runs: MiniRuns) -> None:
    # No warm start of another test is this run's, and it is long: death comes in the middle, or else right after it.
    anew = ("--seed", "4711", "--set", "warm_start.clean_steps=200")
    run = mini_runs.start("killed-early", "--steps", "2", "--set", "evaluation.tasks_per_family=0", *anew)
    run.kill_process(SERVER_REAPER)
    run.wait_event("word of the server's death", "engine.restart_failed")
    run.wait_event("the warm start", "warm_start.progress")
    pid = run.kill_process(LEARNER)
    assert_survived(run, run.succeed(), 2)
    (died,) = run.events("process.died")
    assert names_death(LEARNER, pid)(died)
    done = [event["step"] for event in run.events("warm_start.progress")]
    whole = list(range(20, 201, 20))
    assert done in [whole[:cut] + whole for cut in range(1, len(whole) + 1)] + [whole]


def test_a_run_survives_the_death_of_scheduler_and_engine_actor(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("killed-actors", "--steps", "14", "--set", "evaluation.tasks_per_family=0")
    kill_in_turn(run, [SCHEDULER, ENGINE, SCHEDULER])
    assert_survived(run, run.succeed(), 14)


def test_a_resumed_run_survives_the_death_of_its_engine_before_any_new_weights(mini_runs: MiniRuns) -> None:
    options = ("--steps", "6", "--set", "evaluation.tasks_per_family=0")
    first = mini_runs.start("killed-resumed", *options)
    first.wait_step(2)
    first.process.kill()
    first.process.wait()
    run = mini_runs.resume("killed-resumed")
    known = len(run.events("engine.started"))
    eventually("an engine", lambda: len(run.events("engine.started")) > known)
    run.kill_process(ENGINE)
    assert_survived(run, run.succeed(), 6)


def test_an_evaluation_survives_the_death_of_worker_and_scheduler(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("killed-evaluating", "--steps", "1", "--set", "evaluation.attempts=24")
    run.wait_event("an attempt", "evaluation.progress")
    run.kill_process(WORKER)
    run.wait_event("a restarted worker", "process.died", lambda event: "worker-" in event["what"])
    run.kill_process(SCHEDULER)
    summary = run.succeed()
    assert summary["evaluation"]["before"]["n"] == summary["evaluation"]["after"]["n"] == 24
    assert_survived(run, summary, 1)


def test_one_process_killed_again_and_again_never_ends_a_run(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("killed-often", "--steps", "14", "--set", "evaluation.tasks_per_family=0")
    for what in (LEARNER, BUFFER):
        kill_in_turn(run, [what])
        first = eventually(f"a new {what}", lambda what=what: run.pids(what))
        run.kill_process(what)
        eventually(f"another {what}", lambda what=what, first=first: set(run.pids(what)) - set(first))
    assert_survived(run, run.succeed(), 14)


def test_a_process_that_never_answers_is_started_again(mini_runs: MiniRuns) -> None:
    """Stopped: for who waits the same as a process that hangs in a lock."""
    deadlines = ("--set", "run.unresponsive_timeout_s=30", "--set", "learner.call_timeout_s=120")
    run = mini_runs.start("hung", "--steps", "14", "--set", "evaluation.tasks_per_family=0", *deadlines)
    run.wait_step(1)
    for what in (WORKER, SCHEDULER, LEARNER):
        pid = run.kill_process(what, signal.SIGSTOP)
        kind = "process.died" if what == LEARNER else "process.hung"
        run.wait_event(f"word that {what} hangs", kind, names_death(what, pid))
        past = max(event["step"] for event in run.events("learner.step"))
        run.wait_event(f"a step with a new {what}", "learner.step", lambda event, past=past: event["step"] > past)
    assert_survived(run, run.succeed(), 14)
