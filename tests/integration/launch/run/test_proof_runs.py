"""If this fails, ``--proof`` breaks after the first of its three runs, and half an hour of training shows nothing."""

from __future__ import annotations

import pytest

from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [
    *(pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow),
    pytest.mark.timeout(3600),
]


def test_three_runs_in_one_command_and_a_verdict_on_each(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("proof", "--proof", "--steps", "2")
    ended = run.finish(3 * 600)
    proof = ended.json
    assert set(proof["runs"]) == set(proof["verdicts"]) == {"none", "lr0", "shuffled"}
    assert proof["verdicts"]["none"] is False, "two steps of tossing coins are no proof"
    assert (proof["ok"], ended.exit_code) == (False, 1)
    for control, summary in proof["runs"].items():
        path = run.path.with_name(f"proof-{control}")
        assert summary["steps"] == 2, f"{control}\n{ended.stderr[-4000:]}"
        assert_accounting_balances(path)
    assert proof["runs"]["lr0"]["evaluation"]["difference"] is not None
