"""If this fails, more nodes do not mean more work, or they end each other's sandboxes."""

from __future__ import annotations

import pytest

from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

NODES = [f"node-{number}" for number in range(8)]


def test_eight_nodes_work_side_by_side(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("eight", "--nodes", "8", "--steps", "4", "--set", "evaluation.tasks_per_family=0")
    summary = run.succeed()
    assert summary["nodes"] == 8
    assert summary["steps"] == 4
    assert sorted(event["name"] for event in run.events("node.up")) == NODES
    started = run.events("worker.started")
    assert sorted(event["node"] for event in started) == NODES
    assert len({event["worker"] for event in started}) == 8, "two pools have the same name"
    assert {event["node"] for event in run.events("episode.finished")} == set(NODES), "a node did no work"
    lost = [event for event in run.events("episode.failed") if "sandbox" in event["reason"]]
    assert not lost, "a pool ended another's sandboxes"
    assert_accounting_balances(run.path)
    assert run.list_containers() == []
