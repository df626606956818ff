"""Writes ATIF, Harbor's Agent Trajectory Interchange Format: a JSON file for each trajectory.

Version 1.6 of its RFC 0001.  A step is a message of the system or of a user, or a reply of the agent with its calls,
what came of them, and the tokens that were sampled, where they are known.  What ATIF has no name for (task, verdict,
reward) is in ``extra``.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import msgspec

from actors.agents.agent import AgentAction, AgentToolCall
from actors.agents.hermes import text_outside_calls
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.reasoning import THINK_END, THINK_START, strip_reasoning
from launch.export.selection import ExportItem
from launch.trajectory_reader.recorded_trajectory import RecordedReply, RecordedTrajectory, read_reply

SCHEMA = "ATIF-v1.6"
_OURS = "longshore"
_THOUGHTS = re.compile(rf"\s*{re.escape(THINK_START)}(.*?)(?:{re.escape(THINK_END)}|$)", re.DOTALL)
_SAYS = {"system": "system"}
"""Role of an opening message → the step's source; any other is a user's."""


class AtifToolCall(msgspec.Struct, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, object]


class AtifResult(msgspec.Struct, frozen=True, omit_defaults=True):
    content: str
    source_call_id: str | None = None
    """Empty if it answers no call: a reply that could not be read."""


class AtifObservation(msgspec.Struct, frozen=True):
    results: list[AtifResult]


class AtifMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    completion_token_ids: list[int]
    logprobs: list[float]


class AtifStep(msgspec.Struct, frozen=True, omit_defaults=True):
    step_id: int
    source: str
    message: str
    reasoning_content: str | None = None
    tool_calls: list[AtifToolCall] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None


class AtifAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    version: str
    model_name: str
    tool_definitions: list[dict[str, object]] | None = None


class AtifFinalMetrics(msgspec.Struct, frozen=True):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_steps: int


class AtifTest(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    weight: float


class AtifExtra(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our own additional fields."""

    task: str
    source: dict[str, str]
    status: str | None = None
    passed: bool | None = None
    pass_ratio: float | None = None
    reward: float | None = None
    reward_parts: dict[str, float] | None = None
    tests: list[AtifTest] | None = None


class AtifTrajectory(msgspec.Struct, frozen=True):
    schema_version: str
    session_id: str
    agent: AtifAgent
    steps: list[AtifStep]
    final_metrics: AtifFinalMetrics
    extra: AtifExtra


def to_atif(item: ExportItem) -> AtifTrajectory:
    recorded, origin = item
    tools = [dict(tool.schema) for tool in origin.agent.tools.values()]
    kind = origin.config.agent.kind
    steps = [*_opening(recorded.opening), *_replies(item)]
    return AtifTrajectory(
        SCHEMA,
        recorded.name,
        AtifAgent(f"{_OURS}-{kind}", version(_OURS), origin.model, tools or None),
        [msgspec.structs.replace(step, step_id=number) for number, step in enumerate(steps, 1)],
        AtifFinalMetrics(recorded.prompt_tokens, recorded.completion_tokens, len(steps)),
        _extra(item),
    )


def file_name(recorded: RecordedTrajectory) -> str:
    return f"{recorded.name.replace('/', '.')}.json"


def _opening(messages: Sequence[ChatMessage]) -> list[AtifStep]:
    return [AtifStep(0, _SAYS.get(message["role"], "user"), message["content"]) for message in messages]


def _replies(item: ExportItem) -> list[AtifStep]:
    replies = item.recorded.replies
    return [_reply(item, turn, reply, last=turn == len(replies) - 1) for turn, reply in enumerate(replies)]


def _reply(item: ExportItem, turn: int, reply: RecordedReply, *, last: bool) -> AtifStep:
    actions = read_reply(item.origin.agent, reply, last=last).actions
    calls = {
        number: AtifToolCall(f"call_{turn}_{number}", action.name, action.arguments)
        for number, action in enumerate(actions)
        if isinstance(action, AgentToolCall)
    }
    thought = _THOUGHTS.match(reply.text)
    sampled = reply.sampled
    return AtifStep(
        0,
        "agent",
        text_outside_calls(strip_reasoning(reply.text) or ""),
        thought[1].strip() or None if thought else None,
        [*calls.values()] or None,
        _observed(reply.observation, actions, calls) if reply.observation else None,
        AtifMetrics(sampled.prompt_tokens, len(sampled.ids), [*sampled.ids], [*sampled.logprobs]) if sampled else None,
    )


def _observed(
    observations: Sequence[ChatMessage], actions: Sequence[AgentAction], calls: dict[int, AtifToolCall]
) -> AtifObservation:
    """Return a result for each message; where one message answers all actions, it is of the last call."""
    if len(observations) == len(actions):
        ids = [calls[number].tool_call_id if number in calls else None for number in range(len(actions))]
    else:
        final = [*calls.values()][-1].tool_call_id if calls else None
        ids = [*([None] * (len(observations) - 1)), final]
    return AtifObservation(
        [AtifResult(message["content"], call) for message, call in zip(observations, ids, strict=True)]
    )


def _extra(item: ExportItem) -> AtifExtra:
    recorded, origin = item
    verdict, source = recorded.verdict, {**origin.facts, "path": origin.source}
    if verdict is None:
        return AtifExtra(recorded.task, source)
    return AtifExtra(
        recorded.task,
        source,
        verdict.status.value,
        verdict.passed,
        verdict.pass_ratio,
        verdict.reward,
        dict(verdict.parts),
        [AtifTest(test.name, test.passed, test.weight) for test in verdict.tests],
    )
