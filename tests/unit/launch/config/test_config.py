"""A wrong configuration must be refused at once, with the key and the remedy; a right one must mean what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from actors.agents.prompt import load_agent_prompt
from actors.agents.settings import AgentKind, CallFormatKind, ThinkingMode, ToolsetKind
from actors.engines.settings import WeightTransferMode
from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.rewards.settings import ProcessRewardKind, RewardSettings, RewardSpec, RewardTarget, make_reward_spec
from launch.actor_group.learner_group import learner_spec
from launch.config import (
    ConfigError,
    RecipeError,
    RunConfig,
    SftConfig,
    dotted_fields,
    load_recipe,
    recipe_names,
    resolve,
)
from launch.config.command_line import format_agent_overrides
from launch.config.loader import parse_override
from launch.run_records.stored_config import config_tables
from launch.settings.cluster import DevicePlacement
from learner.losses.settings import LossAggregation, LossType, ProximalPolicy
from learner.settings import LORA_TARGETS, LoraSettings
from protocol.errors import UserError
from protocol.staleness import AdmissionLimit, AdmissionMode
from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.tasks.formats.generated.generator import held_out_tasks


def sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        assert isinstance(field.annotation, type)
        yield name, field.annotation


def enum_of(key: str) -> type[Enum]:
    section, _, name = key.partition(".")
    kind = dict(sections(RunConfig))[section].model_fields[name].annotation
    assert isinstance(kind, type)
    return kind


ENUM_KEYS = [
    f"{name}.{key}"
    for name, section in sections(RunConfig)
    for key, field in section.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum)
]


def test_every_recipe_loads() -> None:
    assert "demo" in recipe_names()
    for name in recipe_names():
        assert load_recipe(name).run.steps > 0


@pytest.mark.parametrize("config", [RunConfig, SftConfig])
def test_every_key_has_a_help_text(config: type[BaseModel]) -> None:
    silent = [
        f"{name}.{key}"
        for name, kind in sections(config)
        for key, field in kind.model_fields.items()
        if not (field.description or "").strip()
    ]
    assert not silent


def test_the_demo_recipe_is_asynchronous_with_the_bounds_that_the_documents_promise() -> None:
    demo = load_recipe("demo")
    assert (demo.learner.eps_low, demo.learner.eps_high) == (0.2, 0.28)
    assert (demo.run.mode, demo.staleness.max_staleness) == (AdmissionMode.ASYNC, 2)
    assert demo.publish_every <= demo.staleness.max_staleness, "rollout runs ahead of the next push"
    assert demo.data.held_out_family


def test_the_demo_recipe_proves_what_the_documents_promise() -> None:
    """Fewer tasks, or lower bounds, and a run would pass that has shown nothing."""
    demo = load_recipe("demo")
    held_out_family, evaluation = demo.data.held_out_family, demo.evaluation
    tasks = held_out_tasks(demo.run.seed, evaluation.tasks_per_family, held_out_family=held_out_family)
    trained = [task.family for task in tasks if task.family != held_out_family]
    assert len(trained) >= 96
    assert len(set(trained)) >= 12
    assert (evaluation.attempts, evaluation.greedy_attempts) == (3, 1)
    assert (demo.proof.min_improvement, demo.proof.min_final_pass_at_1) == (0.35, 0.85)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["evaluation.tasks_per_family=0"], "set evaluation.tasks_per_family = 8, or evaluation.every_steps = 0"),
        (["sandbox.capacity_per_node=32"], "raise it to 36, or lower rollout.episodes_per_worker"),
        (["checkpoint.keep_best=true", "checkpoint.every_steps=6"], "keep_best keeps one.*set .*every_steps = 12"),
    ],
)
def test_online_evaluations_that_could_not_run_are_refused_with_the_remedy(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_recipe("demo", ["evaluation.every_steps=8", *overrides])
    assert load_recipe("demo", ["evaluation.every_steps=8"]).online_evaluation_slots == 4


def test_only_async_publishes_less_often_than_it_steps() -> None:
    published = {mode: load_recipe("demo", [f"run.mode={mode}"]).publish_every for mode in AdmissionMode}
    assert published == {AdmissionMode.ASYNC: 2, AdmissionMode.SYNC: 1, AdmissionMode.ONE_STEP_OFF: 1}


def test_a_config_survives_being_written_and_read() -> None:
    demo = load_recipe("demo")
    assert resolve(config_tables(demo)) == demo


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("run.step=3", "did you mean 'run.steps'"),
        ("rollout=3", "it is a section, with keys as 'rollout."),
        ("run.steps=99999999999999999999", "run.steps: must be at most"),
        ("rollout.temperature=2", "did you mean 'agent.temperature'"),
        ("lerner.lr=1", "did you mean 'learner.lr'"),
        ("rolout.group_sze=2", "did you mean 'rollout.group_size'"),
        ("staleness", "section.key=value"),
        ("run.steps=many", "run.steps: must be a valid integer"),
        ("run.mode=asink", "run.mode: must be 'sync', 'one_step_off' or 'async', not 'asink'; did you mean 'async'"),
        ("run.steps=0", "at least 1"),
        ("rollout.group_size=1", "at least 2"),
        ("learner.lr=nan", "learner.lr"),
        ("learner.tp=2", "set learner.ranks = 2"),
        ("learner.cp=2", "tp × pp × cp = 2: set learner.ranks = 2"),
        ("learner.sequence_parallel=true", "set learner.tp = 2"),
        ("learner.micro_batch_tokens=500", "set learner.micro_batch_tokens = 768 or more, or raise learner.cp"),
        ("warm_start.noise_spread=0.46", "at most 0.45"),
        ("learner.dual_clip=1.1", "set learner.dual_clip = 3.0"),
        ("learner.tis_cap=2.0", "set learner.loss = 'reinforce'"),
        ("learner.loss=reinforce", "set learner.tis_cap = 2.0"),
        ("learner.aggregation=constant", "learner.aggregation_tokens"),
        ("correction.proximal=recomputed", "set learner.minibatches = 2"),
        ("correction.band=[1.5,2.0]", "set correction.band = [0.5, 2.0]"),
        ("shaping.overlong_tokens=100", "set it between 1 and shaping.overlong_tokens"),
        ("shaping.scale=0", "shaping.scale"),
        ("rollout.reward=pass_ratoi", "did you mean 'pass_ratio'?"),
        ("rollout.reward=pass_ratio_with_bonus", "set reward.bonus = 0.5, as SETA's model card says, or 1.0"),
        ("reward.bonus=0.5", "set rollout.reward = 'pass_ratio_with_bonus'"),
        ("reward.bonus=0", "reward.bonus: must be above 0"),
        ("reward.discount=0.9", "set learner.advantage = 'turn', or reward.discount = 1"),
        ("reward.discount=1.1", "reward.discount: must be at most 1"),
        ("reward.proces=art", "did you mean 'reward.process'"),
        (
            "judge.enabled=true",
            "set judge.model to its Hugging Face folder, which the run then serves itself",
        ),
        ("judge.url=host:30000", "write it as http://host:30000/v1"),
        ("judge.timeout_s=30", "judge.vote_timeout_s = 60 is more than judge.timeout_s = 30"),
        ("lora.rank=8", "set lora.rank = 0, or warm_start.enabled = false and model.path"),
        ("kl.reference=/sft", "is for all weights of model.path, and the demo"),
        ("lora.alpha=0", "lora.alpha: must be above 0"),
        ("checkpoint.keep_every_steps=9", "set keep_every_steps = 8"),
        ("staleness.max_staleness=0", "set staleness.max_staleness = 1 or run.mode = 'sync'"),
        ("cluster.placement=colocated", "set run.mode = 'sync' or cluster.placement = 'separate'"),
        ("learner.publish_every=3", "set staleness.max_staleness = 3 or learner.publish_every = 2"),
        ("evaluation.every_steps=5", "not a multiple of learner.publish_every = 2"),
        ("model.path=/some/where", "set warm_start.enabled = false"),
        ("data.kind=terminal_bench", "set data.path"),
        (
            "data.kind=harbour",
            "harbor, openclaw, openclaw_messages, miles, swe_synth, liveweb, swe_bug, code, answer; did you mean 'harb",
        ),
        ("sandbox.provider=dokcer", "there are docker, pool, environment, daytona; did you mean 'docker'?"),
        ("sandbox.urls=http://a:18081", "set sandbox.provider = 'pool' or 'environment', or remove sandbox.urls"),
        ("sandbox.options={url=1}", "remove url"),
        ("data.label=mine", "set data.kind = 'dataset' and data.path, or remove data.label"),
        ("data.task_ids=101-110", "set data.kind = 'dataset' and data.path, or remove data.task_ids"),
        ("data.training_tasks=3", "raise data.training_tasks"),
        ("agent.max_new_tokens=4096", "set agent.max_new_tokens below it"),
        ("agent.context_tokens=65536", "raise engine.max_total_tokens"),
        ("agent.kind=hermse", "choose from hermes, bash, json, keystrokes, code_interpreter; did you mean 'hermes'"),
        ("agent.kind=bash", "set warm_start.enabled = false, or name warm_start.data"),
        ("agent.options={limit=3}", "are for agents that packages add"),
        ("agent.prompt=seta-2", "did you mean 'seta-1'"),
        ("agent.toolset=seta", "set warm_start.enabled = false, or name warm_start.data"),
        ("agent.observation_tokens=16", "set it in between, or to 0"),
        ("agent.observation_tokens=768", "set it in between, or to 0"),
        ("rollout.cleanup_timeout_s=200", "+ clean-up 200): raise it to 670 or lower a stage"),
        (
            "agent.time_limit_s=400",
            "agent.time_limit_s 400 and a last command 20 + grade 60 + clean-up 15): raise it to 825",
        ),
        ("agent.trajectory_tokens=1000", "set both, or leave it out"),
        ("rollout.episodes_per_worker=100", "sandbox.capacity_per_node"),
        ("cluster.nodes=33", "raise it to 33 (and sandbox.capacity_per_node to 33), or ask for fewer --nodes"),
        ("buffer.budget_bytes=1000", "or lower buffer.max_trajectory_bytes"),
        ("rollout.episode_deadline_s=100", "must exceed its stages, 455 s"),
        ("sandbox.max_lifetime_s=300", "raise it to 660"),
        ("engine.start_timeout_s=3000", "before a killed engine is back"),
        ("sandbox.heartbeat_timeout_s=5000", "is not below sandbox.max_lifetime_s"),
        ('sandbox.allow_hosts=["not a host:x"]', "is not a host: write example.org"),
        ('sandbox.python_index="example.org/simple"', "is not a package index"),
        ("sandbox.grade_timeout_s=150", "could end a container during sandbox.grade_timeout_s"),
        ("engine.deterministic=true", "set engine.device = 'cuda'"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_the_remedy(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", [override])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["engine.device=cuda"], "share no device: set both alike"),
        (["engine.device=cuda", "learner.device=cuda", "learner.ranks=2"], "is for one GPU, and learner.ranks = 2"),
        (
            ["engine.device=cuda", "learner.device=cuda", "engine.count=2"],
            "engine.count = 2 and engine.tp = 1 ask for more: set each to 1",
        ),
    ],
)
def test_a_configuration_that_cannot_be_colocated_is_refused_with_the_remedy(overrides: list[str], says: str) -> None:
    sharing = ["cluster.placement=colocated", "run.mode=sync"]
    assert load_recipe("demo", sharing).colocated
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", [*sharing, *overrides])
    assert says in str(caught.value)


JUDGED = ["judge.enabled=true", "judge.url=http://127.0.0.1:30000", "learner.advantage=turn"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["learner.advantage=group"], "set learner.advantage = 'turn', or judge.target = 'total'"),
        (
            ["learner.advantage=group", "reward.process=art", "reward.process_target=turns"],
            "or reward.process_target = 'total' and judge.target = 'total'",
        ),
        (
            ["rollout.episode_deadline_s=480"],
            "must exceed its stages, 575 s (acquire 120 + 3 replies × 60 + agent.time_limit_s 60 and a last command",
        ),
        (["reward.process=art", "rollout.reward=art", "reward.process_cap=0.25"], "set reward.process_cap below 0.25"),
        (["reward.process=art", "rollout.reward=pass_ratio"], "puts 0 above it: set reward.process_target = 'turns'"),
    ],
)
def test_harmful_or_ineffective_rewards_are_refused_with_the_remedy(overrides: list[str], says: str) -> None:
    assert load_recipe("demo", JUDGED).judge.enabled
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", [*JUDGED, *overrides])
    assert says in str(caught.value)


def reward_spec_of(config: RunConfig) -> RewardSpec:
    return make_reward_spec(config.rollout, config.reward, config.judge)


def test_workers_get_the_rewards_of_the_configuration(tmp_path: Path) -> None:
    assert reward_spec_of(load_recipe("demo")) == RewardSpec("binary", RewardSettings())
    key, prompt = tmp_path / "key", tmp_path / "mine.txt"
    key.write_text("s3cret\n")
    prompt.write_text("$task $turn")
    spec = reward_spec_of(
        load_recipe(
            "demo",
            [*JUDGED, "rollout.reward=pass_ratio_with_bonus", "reward.bonus=1.0", "reward.discount=0.9",
             "reward.process=art", "reward.process_cap=0.1", "judge.votes=5", "judge.coefficient=0.5",
             f"judge.key_file={key}", f"judge.prompt={prompt}"],
        )
    )  # fmt: skip
    assert (spec.outcome, spec.settings.bonus, spec.settings.discount) == ("pass_ratio_with_bonus", 1.0, 0.9)
    assert (spec.settings.process, spec.settings.process_cap, spec.settings.process_target) == (
        ProcessRewardKind.ART,
        0.1,
        RewardTarget.TOTAL,
    )
    assert spec.judge is not None
    assert (spec.judge.settings.url, spec.judge.key) == ("http://127.0.0.1:30000/v1", "s3cret")
    assert (spec.judge.prompt, spec.judge.settings.votes, spec.judge.settings.coefficient) == ("$task $turn", 5, 0.5)
    with_path = load_recipe("demo", [*JUDGED, "judge.url=http://127.0.0.1:30000/api/v2/"])
    judge = reward_spec_of(with_path).judge
    assert judge is not None
    assert judge.settings.url == "http://127.0.0.1:30000/api/v2"


@pytest.mark.parametrize("content", [None, "", "two\nlines", "schlüssel"])
def test_an_invalid_judge_key_file_is_refused_before_the_run(content: str | None, tmp_path: Path) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    with pytest.raises(UserError, match=r"judge\.key_file"):
        reward_spec_of(load_recipe("demo", [*JUDGED, f"judge.key_file={key}"]))


def test_context_parallel_ranks_hold_a_longer_episode_together() -> None:
    halves = ["learner.micro_batch_tokens=384", "learner.ranks=2"]
    assert load_recipe("demo", [*halves, "learner.cp=2"]).learner.cp == 2
    with pytest.raises(ConfigError, match="does not hold one episode"):
        load_recipe("demo", halves)


LORA = ["warm_start.enabled=false", "model.path=/some/where", "lora.rank=8"]


@pytest.mark.parametrize(
    ("targets", "says"),
    [("[]", "set lora.targets = 'all-linear'"), ('["q_proj", "gate_prj"]', "did you mean 'gate_proj'")],
)
def test_adapters_without_valid_targets_are_refused(targets: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", [*LORA, f"lora.targets={targets}"])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["lora.rank=0"], "set lora.rank = 16, say, or engine.weight_transfer = 'auto'"),
        (['lora.targets=["q_proj","k_proj"]'], "wants v_proj beside k_proj and q_proj"),
        (["lora.targets=up_proj"], "wants gate_proj beside up_proj"),
        (
            ["cluster.placement=colocated", "run.mode=sync"],
            "engine.weight_transfer = 'auto' or cluster.placement = 'separate'",
        ),
        (["engine.max_adapters=1"], "at least 2"),
    ],
)
def test_adapters_that_no_engine_can_load_without_base_weights_are_refused_with_the_remedy(
    overrides: list[str], says: str
) -> None:
    alone = [*LORA, "engine.weight_transfer=adapters"]
    assert load_recipe("demo", alone).publish_adapters
    assert load_recipe("demo", [*alone, 'lora.targets=["v_proj","q_proj"]']).publish_adapters
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", [*alone, *overrides])
    assert says in str(caught.value)


def test_the_learner_gets_the_adapter_settings() -> None:
    """One name needs no brackets; and the record of a run is read back as the same."""
    assert not learner_spec(load_recipe("demo"), Path("model")).lora.enabled
    config = load_recipe("demo", [*LORA, "lora.targets=o_proj"])
    assert learner_spec(config, Path("model")).lora == LoraSettings(rank=8, alpha=32.0, targets=("o_proj",))
    assert resolve(config_tables(config)) == config
    assert learner_spec(load_recipe("demo", LORA), Path("model")).lora.projections == LORA_TARGETS


def test_float64_is_for_a_cpu() -> None:
    with pytest.raises(ConfigError, match=r"set learner\.dtype = 'bfloat16'"):
        load_recipe("demo", ["learner.dtype=float64", "learner.device=cuda"])


@pytest.mark.parametrize(
    "option",
    ["top_p=0.9", "top_k=20", "min_p=0.1", "frequency_penalty=1", "presence_penalty=1", "repetition_penalty=1.1",
     'logit_bias={"5"=1.0}', 'grammar="a"'],
)  # fmt: skip
@pytest.mark.parametrize("section", ["sampling", "agent"])
def test_sampling_that_would_falsify_logprobs_is_refused_with_the_reason(section: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{section}.*: it would falsify the recorded log-probabilities"):
        load_recipe("demo", [f"{section}.{option}"])


@pytest.mark.parametrize("key", ["rollout.group_sise", "nothing.like_it"])
def test_an_unknown_key_comes_with_the_command_that_shows_the_known_ones(key: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    section, _, name = key.partition(".")
    mine.write_text(f"[{section}]\n{name} = 1\n")
    for recipe, overrides in (("demo", [f"{key}=1"]), (str(mine), [])):
        with pytest.raises(ConfigError, match=r"unknown key .*`longshore cluster demo --dry-run`"):
            load_recipe(recipe, overrides)


NEEDS: dict[Enum, list[str]] = {
    LossType.REINFORCE: ["learner.tis_cap=2"],
    LossAggregation.CONSTANT: ["learner.aggregation_tokens=100"],
    ProximalPolicy.RECOMPUTED: ["learner.minibatches=2"],
    DevicePlacement.COLOCATED: ["run.mode=sync"],
    ThinkingMode.ON: ["warm_start.enabled=false"],
    ThinkingMode.OFF: ["warm_start.enabled=false"],
    ThinkingMode.NO_THINK: ["warm_start.enabled=false"],
    CallFormatKind.AUTO: ["warm_start.enabled=false", "agent.tools=true"],
    ToolsetKind.SETA: ["warm_start.enabled=false"],
    ToolsetKind.OPENCLAW: ["warm_start.enabled=false"],
    ToolsetKind.BROWSER: ["warm_start.enabled=false"],
    WeightTransferMode.ADAPTERS: ["warm_start.enabled=false", "model.path=/some/where", "lora.rank=8"],
}
"""Further settings that a choice requires."""


@pytest.mark.parametrize("key", ENUM_KEYS)
def test_every_choice_of_an_enum_key_is_understood_by_its_room(key: str) -> None:
    """A choice that is offered must not end the run when a room is told of it."""
    for choice in enum_of(key):
        config = load_recipe("demo", [f"{key}={choice.value}", *NEEDS.get(choice, [])])
        spec = learner_spec(config, Path("model"))
        trainer, objective = spec.trainer, spec.objective
        understood = {
            "run.mode": AdmissionLimit(config.run.mode, 4, 2).mode,
            "learner.dtype": trainer.dtype,
            "learner.advantage": objective.policy_loss.advantage,
            "learner.loss": objective.policy_loss.loss,
            "learner.aggregation": objective.policy_loss.aggregation,
            "correction.proximal": objective.corrections.proximal,
            "kl.estimator": objective.kl.estimator,
            "staleness.policy": spec.staleness.policy,
        }
        assert understood.get(key, choice) is choice


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("sandbox.urls=a:18081", "write http://host:port"),
        ("sandbox.image=mine:1", "sandbox.image: sandbox.provider = 'pool' sets them where it is"),
    ],
)
def test_settings_that_pool_sandboxes_cannot_honour_are_refused(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_recipe("demo", ["sandbox.provider=pool", override])


def test_the_capacity_of_a_machine_does_not_bound_pool_sandboxes() -> None:
    more = ["rollout.episodes_per_worker=100", "sandbox.provider=pool"]
    assert load_recipe("demo", more).rollout.episodes_per_worker == 100


def test_each_agent_kind_gets_its_prompt_and_refuses_keys_that_it_would_not_read() -> None:
    other = ["warm_start.enabled=false", "agent.system_prompt=Use the shell."]
    for kind in AgentKind:
        spec = load_recipe("demo", [*other, f"agent.kind={kind}"]).agent.make_spec()
        assert spec.settings.kind == kind
        assert (spec.prompt.system == "Use the shell.") is (kind is AgentKind.HERMES)
    mine = [*other, "agent.kind=bash", "agent.system_prompt=mine", "agent.prompt=bash-1"]
    assert load_recipe("demo", mine).agent.make_spec().prompt == load_agent_prompt("bash-1")
    with pytest.raises(ConfigError, match=r"and agent\.kind, toolset, prompt, thinking and history would not be read"):
        load_recipe("demo", [*other, "agent.toolset=seta", "agent.harness=agent"])
    with pytest.raises(ConfigError, match=r"has its own: leave agent\.toolset out"):
        load_recipe("demo", [*other, "agent.kind=bash", "agent.toolset=seta"])


@pytest.mark.parametrize("recipe", ["instruct", "seta_qwen3_8b"])
def test_another_kind_of_agent_has_its_own_prompt_instead_of_the_recipes(recipe: str) -> None:
    """Otherwise the model would be told another form of actions than the one that is read, or the kind be refused."""
    chosen = ["agent.kind=bash", "agent.toolset=shell_only", "agent.thinking=template"]
    assert load_recipe(recipe, chosen).agent.make_spec().prompt == load_agent_prompt("bash-1")
    mine = load_recipe(recipe, [*chosen, "agent.prompt=json-1"])
    assert mine.agent.make_spec().prompt == load_agent_prompt("json-1")
    with pytest.raises(ConfigError, match=r"agent\.system_prompt would not be read"):
        load_recipe(recipe, [*chosen, "agent.system_prompt=mine"])
    assert load_recipe(recipe, ["agent.kind=hermes"]).agent == load_recipe(recipe).agent


@pytest.mark.parametrize(
    ("context_tokens", "given", "chars"),
    [(32768, [], 8000), (6000, [], 3000), (800, [], 1000), (32768, ["agent.observation_chars=500"], 500)],
)
def test_a_browser_shows_more_of_a_page_than_a_shell_of_its_output(
    context_tokens: int, given: list[str], chars: int
) -> None:
    agent = ["agent.kind=json", "agent.toolset=browser", f"agent.context_tokens={context_tokens}"]
    limits = [f"engine.max_total_tokens={context_tokens}", f"learner.micro_batch_tokens={context_tokens}"]
    rest = ["warm_start.enabled=false", "agent.system_prompt=Use the shell.", "buffer.max_trajectory_bytes=4000000"]
    assert load_recipe("demo", [*agent, *limits, *rest, *given]).agent.observation_chars == chars


def test_an_agent_with_a_browser_has_its_prompt_and_its_programs_and_sandboxes_of_this_machine() -> None:
    other = ["warm_start.enabled=false", "agent.system_prompt=Use the shell."]
    browser = [*other, "agent.kind=json", "agent.toolset=browser"]
    agent = load_recipe("demo", browser).agent
    assert agent.make_spec().prompt == load_agent_prompt("browser-1")
    assert agent.agent_programs == BROWSER_PROGRAMS
    with pytest.raises(
        ConfigError, match=r"'browser' needs sandboxes of this machine.*set sandbox\.provider = 'docker'"
    ):
        load_recipe("demo", [*browser, "sandbox.provider=pool", "sandbox.urls=http://a:1"])


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["agent.harness=claude-cod"], "did you mean 'claude-code'.*'exec claude-cod'"),
        (["agent.harness=claude-code"], "agent.context_tokens = 8192 has no room .* = 65536 or more .--agent claude"),
        ([*format_agent_overrides("claude-code"), "agent.temperature=0.7"], r"sample at 1 \(agent\.temperature"),
    ],
)
def test_limits_with_which_a_published_harness_cannot_work_are_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_recipe("instruct", overrides)


@pytest.mark.parametrize("name", PUBLISHED_HARNESSES)
@pytest.mark.parametrize("recipe", ["demo", "instruct", "seta_qwen3_8b"])
def test_any_recipe_can_have_a_published_harness_as_its_agent(recipe: str, name: str) -> None:
    agent = load_recipe(recipe, format_agent_overrides(name)).agent
    assert agent.published_harness is PUBLISHED_HARNESSES[name]
    assert agent.agent_programs is not None


def test_an_agent_raises_limits_that_are_too_low_and_no_others() -> None:
    before = load_recipe("art_terminal", ["agent.context_tokens=20000"])
    after = load_recipe("art_terminal", ["agent.context_tokens=20000", *format_agent_overrides("pi")])
    assert (before.agent.context_tokens, after.agent.context_tokens) == (20000, 20000)
    assert load_recipe("instruct", format_agent_overrides("pi")).agent.context_tokens == 16384
    own = [*format_agent_overrides("pi"), "agent.context_tokens=9000"]
    assert load_recipe("instruct", own).agent.context_tokens == 9000, "--set has the last word"


def test_a_trajectory_of_rerendered_histories_must_fit_into_a_micro_batch() -> None:
    anew = ["agent.history=dynamic", "agent.context_tokens=8192", "learner.micro_batch_tokens=8192"]
    with pytest.raises(ConfigError, match=r"for the 24576 tokens and 3 turns .* or lower agent\.trajectory_tokens"):
        load_recipe("demo", anew)
    assert load_recipe("demo", [*anew, "agent.trajectory_tokens=12000"]).agent.total_tokens == 12000
    assert load_recipe("demo").agent.total_tokens == load_recipe("demo").agent.context_tokens


def test_deterministic_sampling_can_be_enabled_on_cuda_engines() -> None:
    assert load_recipe("demo", ["engine.device=cuda", "engine.deterministic=true"]).engine.deterministic
    assert not load_recipe("demo").engine.deterministic


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("demo", ["staleness.max_staleness=0", "sandbox.max_lifetime_s=300"])
    assert "staleness.max_staleness" in str(caught.value)
    assert "sandbox.max_lifetime_s" in str(caught.value)


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(RecipeError, match=r"the recipes are .*demo.*did you mean 'demo'"):
        load_recipe("dmo")


def test_a_recipe_can_be_a_file_of_the_user(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[run]\nmode = "sync"\n[staleness]\nmax_staleness = 0\n')
    config = load_recipe(str(mine), ["run.steps=5"])
    assert (config.run.name, config.run.steps, config.run.mode) == ("mine", 5, AdmissionMode.SYNC)
    mine.write_text("[rollouts]\ngroup_size = 2\n")
    with pytest.raises(ConfigError, match="unknown key 'rollouts'; did you mean 'rollout'"):
        load_recipe(str(mine))
    mine.write_text("run = 3\n")
    with pytest.raises(ConfigError, match="run"):
        load_recipe(str(mine))
    mine.write_text("[run\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(str(mine))
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        load_recipe(str(tmp_path / "absent.toml"))


def test_the_lr0_control_does_not_learn() -> None:
    assert load_recipe("demo", ["run.negative_control=lr0"]).learning_rate == 0
    assert load_recipe("demo", ["run.negative_control=shuffled"]).learning_rate == load_recipe("demo").learner.lr


@pytest.mark.parametrize("betas", ["[1,0.95]", "[0.9,1]", "[-0.1,0.95]"])
def test_adam_betas_outside_their_range_are_refused(betas: str) -> None:
    with pytest.raises(ConfigError, match=r"learner\.betas"):
        load_recipe("demo", [f"learner.betas={betas}"])


def test_truncated_importance_sampling_can_be_asked_for() -> None:
    def capped(*overrides: str) -> float | None:
        return learner_spec(load_recipe("demo", list(overrides)), Path("model")).objective.policy_loss.tis_cap

    assert capped() is None
    assert capped("learner.loss=reinforce", "learner.tis_cap=2.0") == 2.0
    with pytest.raises(ConfigError, match=r"learner\.tis_cap"):
        capped("learner.tis_cap=0")


def test_the_shuffled_control_chooses_no_group_by_its_rewards() -> None:
    assert load_recipe("demo").dynamic_sampling
    assert not load_recipe("demo", ["rollout.dynamic_sampling=false"]).dynamic_sampling
    assert not load_recipe("demo", ["run.negative_control=shuffled"]).dynamic_sampling


@given(st.sampled_from(sorted(dotted_fields(RunConfig))), st.text())
def test_no_override_crashes(key: str, raw: str) -> None:
    """Whatever is typed after the equals sign is a value or a ConfigError, never a traceback."""
    with contextlib.suppress(ConfigError):
        assert parse_override(f"{key}={raw}")[0] == key
        load_recipe("demo", [f"{key}={raw}"])
