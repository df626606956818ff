"""If these fail, a recipe that bears a system's name trains something else than its document says."""

from __future__ import annotations

import tomllib
from enum import Enum
from pathlib import Path

import pytest

from actors.engines.server.process import RESERVED_TOKENS
from actors.rewards.process_rules import MALFORMED_RULE, MAX_TURN_REWARD, RULES
from launch.bench.tiny_recipes import tiny_overrides
from launch.cluster import COMMAND
from launch.config import RunConfig, load_recipe, recipe_names
from launch.evaluation.standalone.evaluation import load_local_recipe
from learner.losses.settings import RewardShapingSettings
from tests.support.runs.recipe_tables import ART, REFERENCE, STATED, TABLES, Row, Value

NAMES = sorted(TABLES)
ROWS = [(name, row) for name in NAMES for row in TABLES[name]]
there = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the documents are not part of the repository")


def value_of(config: RunConfig, key: str) -> Value:
    section, _, name = key.partition(".")
    value = getattr(getattr(config, section), name)
    if isinstance(value, Path):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def titled(pair: tuple[str, Row]) -> str:
    name, row = pair
    return f"{name}-{row.line}-{row.key or row.quote}"


POSITIONS = {"Qwen3-8B": 40960, "Qwen3-4B": 40960, "Qwen3-32B": 40960, "qwen3-4b-ra-sft-merged-epoch3": 262144}
"""Maximal positions of the models that recipes name, from their config.json; the last is Qwen3-4B-Instruct-2507's."""


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_no_longer_than_the_recipes_own_model_takes(name: str) -> None:
    """Otherwise the recipe's own command would be refused on every cluster."""
    config = load_recipe(name)
    assert config.agent.context_tokens + RESERVED_TOKENS <= POSITIONS[str(config.model.path)]


def test_every_recipe_of_a_document_has_a_table() -> None:
    assert [name for name in recipe_names() if name not in {"demo", "instruct"}] == NAMES


@pytest.mark.parametrize(("name", "row"), ROWS, ids=map(titled, ROWS))
def test_a_key_has_the_documented_value_or_a_stated_reason(name: str, row: Row) -> None:
    if not row.key:
        assert row.why, "a figure without a key of ours has a reason"
        return
    assert value_of(load_recipe(name), row.key) == row.expected
    assert not row.why or row.expected != row.value or row.value == "", "a reason for what is no difference"


@there
@pytest.mark.parametrize(("name", "row"), ROWS, ids=map(titled, ROWS))
def test_the_document_has_the_quote_in_the_cited_line(name: str, row: Row) -> None:
    lines = (REFERENCE / row.document).read_text(encoding="utf-8").splitlines()
    assert row.quote in lines[row.line - 1], f"{name}: {row.document}:{row.line}"


@pytest.mark.parametrize("name", sorted(STATED))
def test_no_hyper_parameter_of_a_document_is_left_out(name: str) -> None:
    for document, lines in STATED[name].items():
        assert set(lines) <= {row.line for row in TABLES[name] if row.document == document}


@pytest.mark.parametrize(
    ("line", "quote", "rule", "gives"),
    [
        (99, "+0.01", "valid_command", 0.01),
        (100, "+0.02", "command_succeeds", 0.02),
        (101, "+0.03", "code_modified", 0.03),
        (102, "+0.02", "tests_discovered", 0.02),
        (103, "-0.05", "invalid_format", -0.05),
        (104, "-0.02", "timeout", -0.02),
    ],
)
def test_the_process_rewards_of_art_are_those_of_its_document(line: int, quote: str, rule: str, gives: float) -> None:
    ours = {each.name: each.value for each in (*RULES, MALFORMED_RULE)}
    assert ours[rule] == gives
    if REFERENCE.is_dir():
        assert quote in (REFERENCE / ART).read_text(encoding="utf-8").splitlines()[line - 1]


def test_process_rewards_of_an_episode_stay_below_the_reward_of_a_pass() -> None:
    reward = load_recipe("art_terminal").reward
    assert (reward.process, MAX_TURN_REWARD) == ("art", 0.1)
    assert 2 * reward.process_cap < 0.5


def test_the_reward_of_seta_is_shaped_as_its_card_says() -> None:
    assert load_recipe("seta_qwen3_8b").objective.shaping == RewardShapingSettings(bias=-0.5, scale=10.0, clip=20.0)


def test_the_step_limit_of_grpo_tcr_follows_from_its_epochs() -> None:
    """366 steps: 3 passes over 490 samples, 4 a step."""
    config = load_recipe("grpo_tcr_qwen3_4b", ["run.steps=100000"])
    assert config.limited_to_epochs(490).run.steps == 366
    assert config.limited_to_epochs(3).run.steps == 3, "a pass that fills no step is one all the same"
    assert load_recipe("demo").limited_to_epochs(1).run.steps == load_recipe("demo").run.steps, "no epochs, no such end"
    assert load_recipe("grpo_tcr_qwen3_4b").limited_to_epochs(100_000).run.steps == 366, "never more than run.steps"


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_prints_a_recipe(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert COMMAND.main([name, "--dry-run"]) == 0
    printed = tomllib.loads(capfd.readouterr().out)
    assert printed["run"]["name"] == name


@pytest.mark.parametrize(
    "overrides",
    [
        ["judge.enabled=true", "judge.url=http://127.0.0.1:30000/v1", "learner.advantage=turn"],
        ["learner.advantage=turn", "reward.discount=0.9"],
    ],
)
def test_the_optional_settings_of_openclaw_are_accepted(overrides: list[str]) -> None:
    assert load_recipe("openclaw_terminal", overrides)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("seta_qwen3_8b", ["reward.bonus=1.0"]),
        ("seta_qwen3_8b", ["learner.advantage=group"]),
        ("seta_qwen3_8b", ["learner.minibatches=2", "correction.proximal=recomputed"]),
        ("seta_qwen3_8b", ["sandbox.provider=pool", "sandbox.urls=http://router:18080", "sandbox.group_slots=true"]),
        ("seta_qwen3_8b", ["sandbox.provider=environment", "sandbox.urls=http://a:18082,http://b:18082"]),
        ("seta_qwen3_8b", ["data.path=datasets.toml", "data.label=seta-v1"]),
        ("seta_miles_multinode", ["sandbox.provider=daytona", "sandbox.options={image='debian:12'}"]),
        ("openclaw_terminal", ["sandbox.provider=docker"]),
        ("art_terminal", ["data.task_ids=1-100"]),
        ("art_terminal", ["agent.kind=json", "run.steps=1000"]),
        ("seta_miles_multinode", ["agent.kind=keystrokes", "agent.toolset=shell_only", "agent.prompt="]),
    ],
)
def test_settings_that_a_recipe_offers_are_accepted(name: str, overrides: list[str]) -> None:
    assert load_recipe(name, overrides)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_evaluated_in_local_sandboxes_even_if_its_runs_use_remote_ones(name: str) -> None:
    assert load_local_recipe(name, ()).sandbox.uses_worker_pools


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_tried_on_a_tiny_model_keeps_its_characteristic_settings(name: str) -> None:
    tried = load_recipe(name, [*tiny_overrides(name), "model.path=/tiny", "data.path=/tasks"])
    whole = load_recipe(name)
    kept = {
        *("agent.kind", "agent.toolset", "agent.prompt", "agent.thinking", "agent.history", "agent.tools"),
        *("rollout.reward", "reward.bonus", "reward.process", "reward.process_cap", "shaping.scale", "shaping.bias"),
        *("learner.advantage", "learner.loss", "learner.aggregation", "learner.eps_low", "learner.eps_high"),
        *("kl.coefficient", "lora.rank", "run.mode", "cluster.placement", "learner.offload", "learner.recompute"),
    }
    assert {key: value_of(tried, key) for key in kept} == {key: value_of(whole, key) for key in kept}
    assert (tried.engine.device, tried.learner.device) == ("cpu", "cpu")
