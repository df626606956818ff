"""If this fails, a run cannot train an agent that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.bench.tiny_recipes import build_tiny_model
from sandbox.host_record import SandboxHost
from tests.support.actors.published_harnesses import install_or_skip
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances
from tests.support.sandbox.bash_agent import AGENT

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

HARNESS = ("--set", f"agent.harness={AGENT}", "--set", "evaluation.tasks_per_family=0", "--steps", "1")


def test_a_run_trains_on_episodes_of_a_harness_in_its_sandboxes(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("harness", *HARNESS)
    assert run.succeed()["steps"] == 1
    finished = run.events("episode.finished")
    assert {event["status"] for event in finished} <= {"completed", "turn_limit", "context_limit"}
    assert all(event["turns"] > 0 for event in finished)
    assert_accounting_balances(run.path)


PUBLISHED = (
    *("--agent", "pi", "--steps", "2", "--set", "evaluation.tasks_per_family=0"),
    *("--set", "agent.context_tokens=6144", "--set", "agent.max_turns=2", "--set", "agent.max_new_tokens=48"),
    *("--set", "rollout.groups_per_step=2", "--set", "rollout.episodes_per_worker=4"),
)


def test_a_run_trains_two_steps_on_episodes_of_a_published_harness(
    mini_runs: MiniRuns, docker_engine: SandboxHost, tmp_path: Path
) -> None:
    """The model is untrained, so most episodes are one reply; a hidden test tosses a coin."""
    build_tiny_model(tmp_path / "model")
    install_or_skip(docker_engine, "pi")
    run = mini_runs.start("published-harness", "--model", str(tmp_path / "model"), *PUBLISHED)
    assert run.succeed()["steps"] == 2
    finished = run.events("episode.finished")
    assert {event["status"] for event in finished} <= {"completed", "turn_limit"}
    assert all(event["turns"] > 0 for event in finished)
    assert_accounting_balances(run.path)
    assert not run.list_resources()
