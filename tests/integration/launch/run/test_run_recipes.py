"""If these fail, a recipe loads and cannot be run: its agent, reward, loss and mode do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.bench.tiny_recipes import build_tiny_model, tiny_overrides
from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.recipe_tables import TABLES
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

PARTS = {
    "seta_qwen3_8b": {"pass_ratio", "all_passed", "bonus"},
    "seta_miles_multinode": {"pass_ratio", "all_passed"},
    "grpo_tcr_qwen3_4b": {"pass_ratio", "all_passed", "tool_calls"},
    "art_terminal": {"pass_ratio", "all_passed", "process"},
    "openclaw_terminal": {"pass_ratio", "all_passed"},
}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build_tiny_model(folder)
    return folder


@pytest.mark.parametrize("name", sorted(TABLES))
def test_two_steps_of_a_recipe_on_a_tiny_model(name: str, mini_runs: MiniRuns, tiny_model: Path) -> None:
    values = (*tiny_overrides(name), f"model.path={tiny_model}")
    sets = [word for value in values for word in ("--set", value)]
    run = mini_runs.start(f"recipe-{name}", *sets, "--steps", "2", recipe=name)
    assert run.succeed()["steps"] == 2
    assert_accounting_balances(run.path)
    trajectories = [read_exported_trajectory(run.path, entry) for entry in read_export_index(run.path)]
    assert trajectories
    assert all(each.reward.parts.keys() >= PARTS[name] for each in trajectories)


def test_a_run_ends_after_the_epochs_that_it_was_given(mini_runs: MiniRuns) -> None:
    """One pass over eight tasks, four of them a step."""
    without = ("--set", "warm_start.enabled=false", "--set", "evaluation.tasks_per_family=0")
    run = mini_runs.start("epochs", *without, "--set", "stop.after_epochs=1", "--steps", "9")
    assert run.succeed()["steps"] == 2
    (alert,) = [event for event in run.events("alert.raised") if event["name"] == "training_ends"]
    assert alert["text"] == "stop.after_epochs = 1: 2 steps of 4 groups, for 8 tasks"
    assert_accounting_balances(run.path)
