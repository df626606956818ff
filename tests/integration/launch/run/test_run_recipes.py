"""If these fail, a recipe loads and cannot be run: its agent, reward, loss and mode do not go together, or it learns
nothing from data in its own document's format."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from launch.bench.recipes.benchmark import RecipePlan, plan_recipe, run_recipe
from launch.bench.recipes.practice_model import UNTRAINED, train_practice_model
from launch.bench.tiny_recipes import build_tiny_model
from protocol.run_directory.layout import SUMMARY_FILE
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

PARTS = {
    "seta_qwen3_8b": {"pass_ratio", "all_passed", "bonus"},
    "seta_miles_multinode": {"pass_ratio", "all_passed"},
    "grpo_tcr_qwen3_4b": {"pass_ratio", "all_passed", "tool_calls"},
    "art_terminal": {"pass_ratio", "all_passed", "process"},
    "openclaw_terminal": {"pass_ratio", "all_passed"},
    "instruct": {"pass_ratio", "all_passed"},
}
STEPS = 2


class PlannedRecipes(NamedTuple):
    folder: Path
    plans: Mapping[str, RecipePlan]


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> PlannedRecipes:
    folder = tmp_path_factory.mktemp("recipes")
    build_tiny_model(folder / UNTRAINED)
    plans = {name: plan_recipe(name, folder, STEPS) for name in PARTS}
    asyncio.run(train_practice_model({name: plan.config for name, plan in plans.items()}, folder))
    return PlannedRecipes(folder, plans)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_two_steps_of_a_recipe_on_a_tiny_model(name: str, planned: PlannedRecipes) -> None:
    plan = planned.plans[name]
    result, failures = asyncio.run(run_recipe(name, plan, planned.folder, STEPS))
    assert failures == []
    assert len(result.rewards) == len(result.losses) == STEPS
    assert result.trained > 0
    assert (result.reward_parts or {}).keys() >= PARTS[name]
    run_dir = planned.folder / "runs" / name
    assert_accounting_balances(run_dir)
    if name == "grpo_tcr_qwen3_4b":
        families = orjson.loads((run_dir / SUMMARY_FILE).read_bytes())["evaluation"]["families"]
        assert sorted(families) == ["deepscaler", "leetcode_code", "numina_math", "omni_math", "taco_code"]
        assert all(each["after"]["n"] == 1 for each in families.values())


def test_a_run_ends_after_the_epochs_that_it_was_given(mini_runs: MiniRuns) -> None:
    """One pass over eight tasks, four of them a step."""
    without = ("--set", "warm_start.enabled=false", "--set", "evaluation.tasks_per_family=0")
    run = mini_runs.start("epochs", *without, "--set", "stop.after_epochs=1", "--steps", "9")
    assert run.succeed()["steps"] == 2
    (alert,) = [event for event in run.events("alert.raised") if event["name"] == "training_ends"]
    assert alert["text"] == "stop.after_epochs = 1: 2 steps of 4 groups, for 8 tasks"
    assert_accounting_balances(run.path)
