"""Measures first prompts, and says which leave no room for a reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from actors.agents.registry import make_agent
from actors.tokens.chat_format import load_chat_format
from launch.config import RunConfig
from protocol.errors import UserError
from sandbox.tasks.task import Task


def measure_first_prompts(config: RunConfig, model_path: Path, tasks: Iterable[Task]) -> dict[str, int]:
    """Return task id → number of tokens of the built-in agent's first prompt.  Raises UserError for a folder whose chat
    format does not fit the agent."""
    settings, agent = config.agent, make_agent(config.agent.make_spec())
    chat = load_chat_format(str(model_path), agent.offered_tools, thinking=settings.thinking.template_argument)
    return {task.id: len(chat.encode_first_prompt(agent.opening_messages(task))) for task in tasks}


def find_overlong_prompts(config: RunConfig, lengths: Mapping[str, int]) -> list[str]:
    """Return the ids of the tasks whose first prompt leaves no room for a reply, sorted."""
    return sorted(name for name, length in lengths.items() if length >= config.agent.context_tokens)


def require_room_for_replies(config: RunConfig, lengths: Mapping[str, int]) -> None:
    """Raise UserError if the first prompt of a task leaves no room for a reply."""
    if overlong := find_overlong_prompts(config, lengths):
        longest = max(overlong, key=lengths.__getitem__)
        raise UserError(
            f"{len(overlong)} of {len(lengths)} tasks leave no room for a reply: the longest first prompt, of "
            f"{longest}, {describe_length(config, lengths[longest])} or more, or leave them out with --only '!GLOB'"
        )


def describe_length(config: RunConfig, length: int) -> str:
    """Return the end of a sentence about a first prompt of ``length`` tokens: what it has, and which setting fits."""
    agent = config.agent
    return (
        f"has {length} tokens, and agent.context_tokens = {agent.context_tokens}: --set "
        f"agent.context_tokens={length + agent.max_new_tokens}"
    )
