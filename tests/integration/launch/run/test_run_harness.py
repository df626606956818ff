"""If this fails, a run cannot train an agent that is not ours."""

from __future__ import annotations

import pytest

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
