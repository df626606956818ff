"""If this fails, ``--mode`` does not say how old the trained tokens are."""

from __future__ import annotations

import pytest

from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances, token_staleness

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


@pytest.mark.parametrize(("mode", "oldest"), [("sync", 0), ("one_step_off", 1)])
def test_no_token_is_older_than_the_mode_allows(mini_runs: MiniRuns, mode: str, oldest: int) -> None:
    run = mini_runs.start(f"mode-{mode}", "--mode", mode, "--steps", "4", "--set", "evaluation.tasks_per_family=0")
    summary = run.succeed()
    assert summary["steps"] == 4
    staleness, _ = token_staleness(run.path)
    assert max(staleness) <= oldest
    assert summary["staleness"]["max"] <= oldest
    assert summary["trajectories"]["masked_tokens"] == 0
    assert_accounting_balances(run.path)
