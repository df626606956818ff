"""If these fail, what a person asks of a real run is said to be done and is not, or nobody is told why a run hangs."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launch.metrics import read_metrics
from launch.rundir import stored_config
from launch.steering.history import read_changes
from protocol.cli.exits import EXIT_USER
from tests.support.books import assert_books_balance
from tests.support.cluster_runs import MiniRun, MiniRuns, eventually, replayed
from tests.support.commands import Done, run_json

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

MANY = ("--steps", "500", "--set", "checkpoint.every_steps=100")


def ctl(run: MiniRun, *words: str) -> Done:
    return run_json(
        "launch.ctl", run.path, *words, *(["--timeout", "300"] if words[0] not in {"status", "list"} else [])
    )


def asked(run: MiniRun, *words: str) -> dict[str, Any]:
    """What a request that the run confirms came to."""
    done = ctl(run, *words)
    assert done.code == 0, done.stderr
    return done.said


def cancelled(run: MiniRun, what: str) -> str:
    """Give up a rollout or its group: one that has not ended before the run hears of it."""

    def attempt() -> str:
        for rollout in asked(run, "list")["rollouts"]:
            name = rollout["trajectory"] if what == "rollout" else str(rollout["group"])
            if (
                rollout["group"] >= 0
                and name.startswith(("train-", *"0123456789"))
                and ctl(run, "cancel", name).code == 0
            ):
                return name
        return ""

    return eventually(f"a {what} that could be cancelled", attempt)


def test_a_person_steers_a_run_to_its_end_and_what_was_changed_holds_after_it(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("steered", *MANY)
    run.wait_step(1)

    asked(run, "pause", "--reason", "lunch")
    paused = asked(run, "status")
    assert (paused["alive"], paused["phase"], paused["flow"]) == (True, "training", "pause")
    asked(run, "retune", "in_flight=4", "lr=1e-4", "--reason", "too fast")
    kept = asked(run, "checkpoint-now")["text"]
    assert kept == f"the checkpoint of step {paused['step']} is kept"
    assert (run.path / "checkpoints" / f"step-{paused['step']:06d}" / "manifest.json").exists()
    refused = ctl(run, "evaluate-now")
    assert (refused.code, refused.stderr.count("\n")) == (EXIT_USER, 1)
    assert asked(run, "status")["step"] == paused["step"], "the learner stood"
    asked(run, "resume")
    run.wait_step(paused["step"] + 1)

    rollout, group = cancelled(run, "rollout"), cancelled(run, "group")
    evaluated = asked(run, "evaluate-now")["text"]
    (step,) = re.findall(r"evaluation of step (\d+): pass@1", evaluated)
    assert (run.path / f"evaluation-step-{step}.json").exists()

    asked(run, "drain")
    summary = run.succeed()
    assert summary["ended"] == "drained"
    books, _ = assert_books_balance(run.path)
    assert books.abandoned >= 1
    ended = {event["trajectory"] for event in run.events("ticket.cancelled")}
    assert any(name.startswith(rollout.rpartition("-a")[0]) for name in ended)
    assert any(name.startswith(f"train-g{int(group):06d}-") for name in ended)
    assert {event["outcome"] for event in run.events("group.closed") if event["group"] == int(group)} == {"cancelled"}
    reasons = {event["action"]: event["reason"] for event in run.events("request.answered")}
    assert (reasons["pause"], reasons["retune"]) == ("lunch", "too fast")

    rates = {int(line["step"]): line["lr"] for line in read_metrics(run.path)}
    assert rates[paused["step"]] == pytest.approx(2e-3)
    assert rates[paused["step"] + 1] == pytest.approx(1e-4)
    assert replayed(run.path)["equal"], "each step again by the rate that it had"

    again = mini_runs.resume("steered")
    again.wait_step(summary["steps"] + 1)
    assert stored_config(run.path).rollout.in_flight == 4
    assert [change.key for change in read_changes(run.path)] == ["rollout.in_flight", "learner.lr"]
    asked(again, "stop")
    assert again.succeed()["ended"] == "asked"
    dead = ctl(again, "pause")
    assert dead.code == EXIT_USER
    assert "--resume steered" in dead.said["error"]


def test_a_run_whose_engine_is_stopped_says_who_waits_for_whom(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("hung", *MANY, "--set", "run.stall_s=15")
    run.wait_step(1)
    servers, since = run.pids("actors.engines.serve"), time.time()
    try:
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        stalled = run.wait_event("the report of its hang", "run.stalled", lambda event: event["t"] > since)
    finally:
        for pid in servers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert stalled["text"].startswith("the training waits for ")
    assert "engine-0" in stalled["text"]
    assert "is stopped (SIGSTOP)" in stalled["text"]
    report = Path(stalled["path"]).read_text()
    for process in ("driver", "buffer", "conductor", "engine-0", "worker-0-0"):
        assert re.search(rf"^{process}: \S", report, re.MULTILINE), f"no task of {process}"
        assert f"-- {process}\n" in report, f"no stack of {process}"
    assert "-- learner-0" in report
    assert "Training.run" in report
    run.wait_event("progress", "advisory.over", lambda event: event["about"] == "stalled")
    asked(run, "stop")
    assert run.succeed()["ended"] == "asked"
