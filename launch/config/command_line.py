"""Options that the commands share: overrides of configuration keys, the recipe, and names of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field
from tyro.conf import Positional

from actors.agents.settings import AgentKind, HistoryMode, ThinkingMode, ToolsetKind
from actors.harnesses.catalog import PUBLISHED_HARNESSES
from launch.config.loader import Toml, recipe_names
from launch.config.run import RunConfig
from launch.config.toml_text import format_toml
from protocol.cli.arguments import (
    CommandArguments,
    LowerBound,
    ShellWords,
    TypedOverride,
    one_of,
    option,
    option_name,
    optional_value,
    setting,
)
from protocol.errors import UserError

NEWEST_RUN = ""
"""``--resume`` without a run id: the newest run."""


def config_key(key: str, config: type[BaseModel] = RunConfig) -> Any:
    """Annotate an option that overrides ``key``: it has the key's help text, and :func:`key_overrides` reads it."""
    section, _, name = key.partition(".")
    table = cast("type[BaseModel]", config.model_fields[section].annotation)
    return setting(table, name, key=key)


def key_overrides(given: CommandArguments) -> list[str]:
    """Return ``section.key=value`` for every option that was given and overrides a key."""
    values: dict[str, object] = {}
    options: dict[str, str] = {}
    for name, field in type(given).model_fields.items():
        value, extra = getattr(given, name), cast("Mapping[str, str] | None", field.json_schema_extra)
        if extra and value != field.default:
            values[extra["key"]] = (
                [*chain(*cast("Iterable[Iterable[str]]", value))] if isinstance(value, tuple) else value
            )
            options[extra["key"]] = option_name(type(given), name)
    return [TypedOverride(each, options[each.partition("=")[0]]) for each in format_overrides(values)]


DEFAULT_RECIPE = "demo"
EVALUATION_RECIPE = "instruct"
"""Default of evaluations, whose model is a user's own."""
"""Recipe if none is named."""
RECIPE_WORDS = ShellWords(tuple(recipe_names()))
RecipeName = Positional[
    Annotated[
        str,
        RECIPE_WORDS,
        option("[RECIPE]"),
        Field(description=f"One of {', '.join(recipe_names())}; or the path of a TOML file."),
    ]
]
NodeCount = Annotated[int | None, option("N"), config_key("cluster.nodes")]
ModelFolder = Annotated[
    str | None,
    option("FOLDER"),
    Field(
        description="Hugging Face folder of a dense Qwen2.5 or Qwen3, which is trained without a warm start and calls "
        "tools in its own format."
    ),
]
PublishedAgent = Annotated[
    str | None,
    one_of(PUBLISHED_HARNESSES),
    option(),
    Field(
        description="A published harness as the agent (agent.harness); limits that are too low for it are raised. "
        "See longshore harness list."
    ),
]
RunName = Annotated[
    str | None, option("ID"), Field(description="Run id, the name of its directory; default: recipe and start time.")
]
Resume = Annotated[
    str | None,
    optional_value("RUN"),
    option(),
    Field(
        description="Resume a run, by id or directory, from its newest intact checkpoint; without RUN that of "
        "--run-id, else the newest run of the recipe."
    ),
]


def require_nonempty(options: Mapping[str, object]) -> None:
    """Raise UserError for an option with an empty value, from an unset shell variable for example: ignoring it would
    start another run than intended."""
    for name, value in options.items():
        if value == "" or (isinstance(value, list | tuple) and "" in value):
            raise UserError(f"{name} is empty: give it a value, or leave it out")


def run_to_resume(resume: str | None, run_id: str | None) -> str | None:
    """Return the id of the run to resume, :data:`NEWEST_RUN` for the newest one, None for a new run.  Raises UserError
    if the two options name different runs."""
    if resume is None or run_id is None:
        return resume
    if resume not in {NEWEST_RUN, run_id}:
        raise UserError(f"--resume {resume} and --run-id {run_id} name two runs: leave one of them out")
    return run_id


def format_overrides(keys: Mapping[str, object]) -> list[str]:
    """Return ``section.key=value`` for each key that has a value."""
    return [f"{key}={format_toml(cast('Toml', value))}" for key, value in keys.items() if value is not None]


def format_model_overrides(model: str | None) -> list[str]:
    """Return ``--model FOLDER`` as overrides: an existing model calls tools in its own format and gets no warm start on
    the demonstrations."""
    if model is None:
        return []
    values = {"model.path": model, "warm_start.enabled": False, "agent.tools": True}
    return [TypedOverride(each, "--model") for each in format_overrides(values)]


def format_agent_overrides(agent: str | None) -> list[str]:
    """Return ``--agent NAME`` as overrides: a published harness replaces the recipe's agent, and limits that are too
    low for it are raised."""
    if agent is None:
        return []
    values = {
        "agent.kind": AgentKind.HERMES,
        "agent.toolset": ToolsetKind.SHELL_ONLY,
        "agent.prompt": "",
        "agent.thinking": ThinkingMode.TEMPLATE,
        "agent.history": HistoryMode.WHOLE,
        "agent.harness": agent,
    }
    tokens = PUBLISHED_HARNESSES[agent].context_tokens
    bounds = {
        "agent.context_tokens": tokens,
        "engine.max_total_tokens": tokens,
        "learner.micro_batch_tokens": tokens,
        "buffer.max_trajectory_bytes": 16 * tokens + 2**16,
        "agent.max_new_tokens": 2048,
        "agent.max_turns": 40,
        "agent.time_limit_s": 900,
        "rollout.episode_deadline_s": 12_000,
        "sandbox.max_lifetime_s": 12_100,
    }
    return [
        *(TypedOverride(each, "--agent") for each in format_overrides(values)),
        *(LowerBound(each, "--agent") for each in format_overrides(bounds)),
    ]
