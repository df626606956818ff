"""If these fail, what is asked of a real run is said to be done and is not, or a run hangs and nobody learns why."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from launch.control.ctl import parse_request
from launch.control.request_client import submit_and_wait
from launch.control.requests import ControlAction
from launch.control.status import read_rollouts, read_status
from launch.run_records.config_changes import read_changes
from launch.run_records.metrics_log import read_metrics
from launch.run_records.stored_config import load_stored_config
from protocol.cli.exit_codes import EXIT_USER
from protocol.errors import UserError
from protocol.run_directory.run_status import RunStatus
from tests.support.commands import run_json
from tests.support.runs.cluster_runs import PATIENCE_S, MiniRun, MiniRuns, eventually, replay_summary
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

MANY = ("--steps", "500", "--set", "checkpoint.every_steps=100")


def request_action(run: MiniRun, action: ControlAction, *words: str, reason: str = "") -> str:
    """The run's word that it is done, as ``longshore ctl`` gets it.  Raises UserError."""
    return submit_and_wait(run.path, parse_request(action, words, reason), PATIENCE_S).text


def open_samples(run: MiniRun) -> list[str]:
    """The trajectories that are to come of some group that has not closed, and are not on their way."""
    closed = {event["group"] for event in run.events("group.closed")}
    stored = {event["trajectory"] for event in run.events("trajectory.stored")}
    stored |= {event["trajectory"].rpartition("-a")[0] for event in run.events("episode.finished")}
    for event in run.events("group.opened"):
        if event["group"] not in closed:
            names = [f"train-g{event['group']:06d}-s{sample:02d}" for sample in range(event["size"])]
            return [name for name in names if name not in stored]
    return []


def pause_with_samples_to_come(run: MiniRun) -> list[str]:
    """Pause the run at a moment when a group waits for at least two samples, which nobody runs then."""

    def attempt() -> list[str]:
        assert request_action(run, ControlAction.PAUSE, reason="lunch").startswith(
            "no rollout begins, and the learner waits"
        )
        eventually("the end of what runs", lambda: not read_rollouts(run.path, content=False))
        if len(found := open_samples(run)) >= 2:
            return found
        request_action(run, ControlAction.RESUME)
        run.wait_step(read_status(run.path).step + 1)
        return []

    return eventually("a group that waits for samples", attempt)


def test_control_requests_steer_a_run_to_its_end_and_changes_persist_after_a_resume(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("steered", *MANY)
    run.wait_step(1)

    first, *others = pause_with_samples_to_come(run)
    paused = read_status(run.path)
    assert (paused.status, paused.phase, paused.flow, paused.running) == (RunStatus.RUNNING, "training", "pause", 0)
    request_action(run, ControlAction.RETUNE, "in_flight=4", "lr=1e-4", reason="too fast")
    assert request_action(run, ControlAction.CHECKPOINT) == f"the checkpoint of step {paused.step} is kept"
    assert (run.path / "checkpoints" / f"step-{paused.step:06d}" / "manifest.json").exists()
    group = int(first[7:13])
    assert request_action(run, ControlAction.CANCEL, first).startswith(
        f"sample {int(first[-2:])} of group {group} is cancelled"
    )
    assert f"group {group} is cancelled: {len(others)} rollouts" in request_action(
        run, ControlAction.CANCEL, str(group)
    )
    found = re.search(
        r"weights of step (\d+) are evaluated", request_action(run, ControlAction.EVALUATE, reason="to see")
    )
    assert found is not None
    assert int(found[1]) == paused.step
    with pytest.raises(UserError, match=rf"step {paused.step}\b"):
        request_action(run, ControlAction.EVALUATE)
    run.wait_event("its end", "evaluation.finished", lambda event: event["step"] == paused.step)
    assert read_status(run.path).step == paused.step, "the learner stood"

    request_action(run, ControlAction.RESUME)
    run.wait_step(paused.step + 1)
    with pytest.raises(UserError, match="write one of engine-0"):
        request_action(run, ControlAction.DRAIN, "engine-9")
    assert request_action(run, ControlAction.DRAIN, "engine-0").startswith("engine-0 is drained: its requests finished")
    assert [event["engine"] for event in run.events("engine.drained", "engine.restarted")] == ["engine-0"] * 2
    assert not run.events("engine.died")
    run.wait_step(read_status(run.path).step + 1)
    request_action(run, ControlAction.DRAIN)
    summary = run.succeed()
    assert summary["ended"] == "drained"
    assert [row["step"] for row in summary["evaluation"]["steps"]] == [paused.step]
    given_up = {first, *others}
    assert not given_up & assert_accounting_balances(run.path).rows.keys(), "nothing came of what was given up"
    assert {event["trajectory"] for event in run.events("rollout_request.cancelled")} == given_up
    assert [event["outcome"] for event in run.events("group.closed") if event["group"] == group] == ["cancelled"]
    reasons = {event["action"]: event["reason"] for event in run.events("control_request.answered")}
    assert (reasons["pause"], reasons["retune"]) == ("lunch", "too fast")
    rates = {int(line["step"]): line["lr"] for line in read_metrics(run.path)}
    assert rates[paused.step] == pytest.approx(2e-3)
    assert rates[paused.step + 1] == pytest.approx(1e-4)
    assert replay_summary(run.path)["equal"], "each step again by the rate that it had"

    again = mini_runs.resume("steered")
    again.wait_step(summary["steps"] + 1)
    assert load_stored_config(run.path).rollout.in_flight == 4
    assert [change.key for change in read_changes(run.path)] == ["rollout.in_flight", "learner.lr"]
    request_action(again, ControlAction.STOP)
    assert again.succeed()["ended"] == "stopped_by_request"
    dead = run_json("launch.control.ctl", run.path, "pause")
    assert dead.exit_code == EXIT_USER
    assert "--resume steered" in dead.output["error"]


def test_a_stalled_run_reports_that_training_waits_for_a_stopped_engine(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("hung", *MANY, "--set", "run.stall_timeout_s=15")
    run.wait_step(1)
    servers, since = run.pids("actors.engines.server.entrypoint"), time.time()
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
    for process in ("driver", "buffer", "scheduler", "engine-0", "worker-0-0"):
        assert re.search(rf"^{process}: \S", report, re.MULTILINE), f"no task of {process}"
        assert f"-- {process}\n" in report, f"no stack of {process}"
    assert "-- learner-0" in report
    assert "TrainingLoop.run" in report
    run.wait_event("progress", "alert.resolved", lambda event: event["name"] == "stalled")
    request_action(run, ControlAction.STOP)
    assert run.succeed()["ended"] == "stopped_by_request"
