"""If this fails, a run cannot train histories that are rendered anew in each turn."""

from __future__ import annotations

import pytest

from learner.data.sequences import join_sequences
from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

ANEW = ("--set", "agent.history=dynamic", "--set", "agent.context_tokens=128", "--set", "agent.max_turns=3")
ONE_STEP = ("--set", "evaluation.tasks_per_family=0", "--steps", "1")


def test_a_run_trains_each_turn_of_a_history_that_loses_its_middle(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("histories", *ANEW, *ONE_STEP)
    assert run.succeed()["steps"] == 1
    trajectories = [read_exported_trajectory(run.path, entry) for entry in read_export_index(run.path)]
    assert any(len(each.segments) > 1 for each in trajectories), "or no history lost anything"
    for each in trajectories:
        sequences = join_sequences(each.segments)
        assert sum(int(mask.sum()) for _, mask in sequences) == each.sampled_tokens
        assert max(len(ids) for ids, _ in sequences) <= 128
    assert_accounting_balances(run.path)
