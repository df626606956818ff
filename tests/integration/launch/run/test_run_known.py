"""If these fail, what a person is told of a run is not what it did: its plan, its logs, its figures, its timeline."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from launch.plan.forecast import basis_from_trace, forecast_run
from launch.run_records.stored_config import load_stored_config
from launch.simulate.run_trace import read_trace
from launch.trace.run_timeline import read_run_timeline
from launch.trace.trace_events import TraceSpan
from protocol.run_directory.json_fields import parse_json_object
from tests.support.runs.cluster_runs import MiniRun, MiniRuns, eventually

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

STEPS = 12
SMALL = ("--set", "warm_start.enabled=false", "--set", "evaluation.tasks_per_family=0", "--steps", str(STEPS))
IDS = {"run", "writer", "node", "step", "group", "rollout"}


@pytest.fixture(scope="module")
def known(mini_runs: MiniRuns) -> MiniRun:
    """A run that serves its figures, and has come to its end."""
    run = mini_runs.start("known", *SMALL, "--set", "metrics.prometheus=true", "--set", "parity.every_steps=0")
    url = eventually("it says where its figures are", lambda: re.search(r"metrics: (http://127\S+)", run.stderr))[1]
    run.wait_event("a step is taken", "learner.step", lambda event: event["step"] >= 2)
    eventually("the figures have it", lambda: _step(url) >= 2)
    assert run.succeed()["steps"] == STEPS
    return run


def _step(url: str) -> float:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  the run's own
        found = re.search(r'^longshore_step\{run="known"\} (\S+)$', answer.read().decode(), re.MULTILINE)
    assert found
    return float(found[1])


def test_a_plan_based_on_the_times_of_a_run_is_within_a_fifth_of_its_measurements(known: MiniRun) -> None:
    """From what episodes and steps took in this very run, however busy the machine was."""
    trace, config = read_trace(known.path), load_stored_config(known.path)
    planned, steps = forecast_run(config, basis_from_trace(trace, config.rollout)), trace.file.steps
    measured = 3600 * len(steps) / sum(step.busy_s + step.wait_s for step in steps)
    assert planned.steps_per_hour == pytest.approx(measured, rel=0.2)
    assert planned.staleness_mean == pytest.approx(trace.measured.staleness_mean, rel=0.2, abs=0.1)


def test_every_log_line_carries_the_ids_of_its_subject(known: MiniRun) -> None:
    logs = {path.stem: _lines(path) for path in (known.path / "starts" / "1" / "logs").glob("*.jsonl")}
    assert {"driver", "worker-0-0", "learner-0"} <= set(logs)
    assert all(set(line) >= IDS for lines in logs.values() for line in lines)
    assert {line["run"] for lines in logs.values() for line in lines} == {"known"}
    delivered = [line for line in logs["worker-0-0"] if line["event"] == "episode delivered"]
    named = {event["trajectory"] for event in known.events("episode.finished")}
    assert {line["rollout"] for line in delivered} <= named
    assert len(delivered) >= STEPS
    assert [line["step"] for line in logs["learner-0"] if line["event"] == "step computed"][-1] == STEPS


def _lines(path: Path) -> list[dict[str, Any]]:
    found = [parse_json_object(line) for line in path.read_bytes().splitlines()]
    assert None not in found
    return [line for line in found if line is not None]


def test_the_timeline_shows_the_activity_of_each_process(known: MiniRun) -> None:
    spans = [piece for piece in read_run_timeline(known.path).trace_events() if isinstance(piece, TraceSpan)]
    names = {(span.track.process, span.name) for span in spans}
    assert {("learner", f"step {step}") for step in range(1, STEPS + 1)} <= names
    assert {("engine-0", "paused"), ("worker-0-0", "generate"), ("worker-0-0", "grade")} <= names


def test_a_tracker_that_cannot_be_opened_ends_a_run_before_it_begins(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("untracked", *SMALL, "--set", "metrics.exporters=tensorboard")
    done = run.finish()
    assert (done.exit_code, done.json["exit_code"]) == (2, 2)
    assert "pip install 'longshore[tensorboard]'" in done.json["error"]
    assert not run.path.exists()
