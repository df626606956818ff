"""Checks of a configuration before anything starts: each takes moments and raises a UserError that says what is wrong,
why it matters, and what to do.  A run that is refused here leaves nothing behind.

:mod:`launch.doctor` checks the machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from actors.agents.registry import load_call_format, make_agent, require_readable_replies
from actors.agents.settings import CallFormatKind, HistoryMode
from actors.rewards.settings import make_reward_spec
from actors.tokens.chat_format import load_chat_format
from launch.actor_group.specs.engine_spec import require_positions
from launch.actor_group.specs.judge_spec import check_judge_model, why_judge_is_silent
from launch.actor_group.specs.sandbox_providers import check_provider
from launch.config import RunConfig
from launch.data.demo.model import CONTEXT_TOKENS
from launch.data.preparation import require_model_files
from launch.data.sft_examples import check_sources
from launch.data.task_split import load_usable_tasks
from launch.doctor.finding import CheckName, Finding, warning
from launch.doctor.host_checks import require_host
from launch.doctor.requirements import host_requirements
from launch.exporters.exporter_registry import check_exporters
from learner.models.qwen import read_qwen_config
from learner.settings import TrainerSettings
from protocol.errors import UserError
from sandbox.tasks.formats.generated.generator import training_families


def run_preflight_checks(config: RunConfig) -> list[Finding]:
    """Return the warnings about this machine and the judge.  Raises UserError for the first problem that would stop the
    run of ``config``."""
    for check in list_recipe_checks(config):
        check()
    return [*find_judge_warnings(config), *require_host(host_requirements(config))]


def find_judge_warnings(config: RunConfig) -> list[Finding]:
    """Return a warning if the judge's server cannot be asked; a run works without it, on other rewards."""
    if not (why := why_judge_is_silent(config.judge)):
        return []
    message = f"the judge at {config.judge.url} {why}: as long as that is so, no turn has a score"
    return [warning(CheckName.RECIPE, message, "start its server, or correct judge.url or judge.key_file")]


def list_recipe_checks(config: RunConfig) -> tuple[Callable[[], object], ...]:
    """Return the checks of ``config`` that do not depend on the machine.  Each raises UserError."""
    agent_spec = config.agent.make_spec()
    return (
        lambda: _check_policy(config),
        lambda: make_reward_spec(config.rollout, config.reward, config.judge),
        lambda: check_judge_model(config),
        lambda: check_reference(config),
        lambda: check_sources(config.warm_start.data) if config.warm_start.enabled else None,
        lambda: training_families(config.data.held_out_family) if config.data.generated else load_usable_tasks(config),
        lambda: check_memory_saver(config),
        lambda: check_exporters(config.metrics.exporters, "metrics.exporters"),
        lambda: (
            None if config.sandbox.uses_worker_pools else check_provider(config, make_agent(agent_spec), os.environ)
        ),
    )


def _check_policy(config: RunConfig) -> None:
    """Raise UserError unless the agent exists and the model can be trained and prompted."""
    agent, model = make_agent(config.agent.make_spec()), config.model.path
    if model is not None:
        require_model_files(model)
        check_parallel_layout(model, config.learner)
        load_call_format(config.agent, str(model))
        chat = load_chat_format(str(model), agent.offered_tools, thinking=config.agent.thinking.template_argument)
        require_readable_replies(config.agent, chat.tokenizer)
        if config.agent.format is CallFormatKind.AUTO and config.agent.history is not HistoryMode.WHOLE:
            chat.check_text_history()
    check_context(config)


def check_parallel_layout(model: Path, learner: TrainerSettings) -> None:
    """Raise UserError unless heads, inner rows and layers of ``model`` can be divided among the learner's ranks."""
    shape, tp, pp = read_qwen_config(model), learner.tp, learner.pp
    heads, inner, layers = shape.num_key_value_heads, shape.intermediate_size, shape.num_hidden_layers
    if heads % tp or inner % tp:
        fitting = [size for size in range(1, heads + 1) if heads % size == inner % size == 0]
        raise UserError(
            f"learner.tp = {tp} does not divide the {heads} key-value heads and the {inner} inner rows of {model}: "
            f"set it to one of {', '.join(map(str, fitting))}"
        )
    if layers % pp:
        raise UserError(
            f"learner.pp = {pp} does not divide the {layers} layers of {model}: set it to one of "
            f"{', '.join(str(size) for size in range(1, layers + 1) if layers % size == 0)}"
        )


def check_reference(config: RunConfig) -> None:
    """Raise UserError unless the folder of the KL penalty's reference, if there is one, holds a model of the trained
    model's shape."""
    folder, model = config.kl.reference, config.model.path
    if folder is None or model is None:
        return
    try:
        trained, reference = asdict(read_qwen_config(model)), asdict(read_qwen_config(folder))
    except UserError as error:
        raise UserError(f"kl.reference = '{folder}' cannot be compared with {model}: {error}") from error
    differing = [name for name in trained if name != "max_position_embeddings" and reference[name] != trained[name]]
    if differing or not any(folder.glob("*.safetensors")):
        what = f"has another {', '.join(differing)} than {model}" if differing else "has no *.safetensors"
        raise UserError(
            f"kl.reference = '{folder}' {what}: name a Hugging Face folder with the trained model's shape, or leave it "
            "out, and the reference is the weights with which the run begins"
        )


MEMORY_SAVER = "torch_memory_saver"


def check_memory_saver(config: RunConfig) -> None:
    """Raise UserError if a colocated engine on a GPU lacks SGLang's memory saver."""
    if config.colocated and config.engine.device == "cuda" and importlib.util.find_spec(MEMORY_SAVER) is None:
        raise UserError(
            "cluster.placement = colocated on a GPU needs SGLang's memory saver, which is not installed: "
            f"{sys.executable} -m pip install {MEMORY_SAVER.replace('_', '-')}, or --set cluster.placement=separate"
        )


def check_context(config: RunConfig) -> None:
    """Raise UserError if an episode may be longer than SGLang serves with the model."""
    path = config.model.path
    positions = read_qwen_config(path).max_position_embeddings if path is not None else CONTEXT_TOKENS
    require_positions(config.agent.context_tokens, positions)
