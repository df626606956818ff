"""If this fails, a judge on a run's own engines gets the policy's weights, takes the run with it when its server dies,
counts as a judgement what it did not say, or is gone after a resume."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.run_records.metrics_log import read_metrics
from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from protocol.trajectory import Trajectory, TurnKind
from tests.support.runs.cluster_runs import RECIPE, MiniRun, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

VOTES = 2
JUDGE = "judge-0"


def test_a_run_serves_its_own_judge_beside_its_engines_through_deaths_and_resumes(
    mini_runs: MiniRuns, tmp_path: Path
) -> None:
    """The judge is an untrained model, so that none of its replies is a vote."""
    folder = tmp_path / "judge"
    build_demo_model(folder, load_recipe(str(RECIPE), [f"data.path={mini_runs.tasks}"]).model, seed=5, positions=8192)
    keys = {
        "judge.enabled": "true",
        "judge.model": str(folder),
        "judge.votes": str(VOTES),
        "judge.max_new_tokens": "16",
        "learner.advantage": "turn",
        "rollout.dynamic_sampling": "false",
        "evaluation.tasks_per_family": "0",
    }
    options = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    run = mini_runs.start("judge", *options, "--steps", "1")
    started = run.wait_event("the judge", "engine.started", lambda event: event["engine"] == JUDGE)
    os.kill(started["pid"], signal.SIGKILL)
    assert run.succeed()["steps"] == 1
    assert JUDGE in [event["engine"] for event in run.events("engine.died")]
    assert mini_runs.resume("judge", "--set", "run.steps=2").succeed()["steps"] == 2

    assert_accounting_balances(run.path)
    trajectories = [read_exported_trajectory(run.path, entry) for entry in read_export_index(run.path)]
    assert len(trajectories) >= 32
    assert all(each.reward.parts["judge_votes"] == 0.0 == each.reward.parts["judge"] for each in trajectories)
    assert all(count_failures(each) == VOTES * len(model_turn_rewards(each)) for each in trajectories)
    assert not any(reward for each in trajectories for reward in model_turn_rewards(each))
    assert sum(each.reward.parts["judge_invalid"] for each in trajectories) > 0
    assert_own_engine(run)


def assert_own_engine(run: MiniRun) -> None:
    """The judge starts with the run and after each resume, is loaded with no other weights, and its tokens are counted
    apart."""
    starts = [event for event in run.events("engine.started") if event["engine"] == JUDGE]
    assert [event["version"] for event in starts] == [0, 0]
    assert {event["engine"] for event in run.events("engine.loaded")} == {"engine-0"}
    assert sum(line["judge_tokens"] for line in read_metrics(run.path)) > 0


def model_turn_rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.segments[0].turns if turn.kind is TurnKind.MODEL]


def count_failures(trajectory: Trajectory) -> float:
    return sum(trajectory.reward.parts[f"judge_{kind}"] for kind in ("invalid", "slow", "down"))
