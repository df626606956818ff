"""Hermes tool calls: ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``, as Qwen models write them.

A reply without a call ends the episode.  A call that does not parse is reported to the model, never dropped silently,
and counted as malformed.  Each call is answered by a message of its own, with the role ``tool``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import orjson

from actors.agents.agent import ActionOutcome, AgentAction, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_format import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

CALL_START, _CALL_END = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class FinalReply:
    """The agent's final reply."""

    text: str


def _parse_call(text: str) -> AgentAction:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return MalformedAction(f"the tool call is not valid JSON: {error}")
    if not isinstance(value, dict):
        return MalformedAction("the tool call is not a JSON object")
    call = cast("dict[str, object]", value)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str):
        return MalformedAction('the tool call has no "name"')
    if not isinstance(arguments, dict):
        return MalformedAction('the tool call\'s "arguments" is not an object')
    return AgentToolCall(name, cast("dict[str, object]", arguments))


class _SplitReply(NamedTuple):
    calls: list[str]
    """The text inside each call."""
    rest: str


def _split_calls(text: str) -> _SplitReply:
    """Split a reply into calls and other text, in linear time: a policy may write any number of markers."""
    calls: list[str] = []
    rest: list[str] = []
    at = 0
    while (begin := text.find(CALL_START, at)) >= 0:
        end = text.find(_CALL_END, begin)
        if end < 0:
            break
        rest.append(text[at:begin])
        calls.append(text[begin + len(CALL_START) : end].strip())
        at = end + len(_CALL_END)
    return _SplitReply(calls, "".join((*rest, text[at:])).strip())


def text_outside_calls(text: str) -> str:
    """Return the text of a reply outside its calls."""
    return _split_calls(text).rest


def parse_tool_calls(text: str) -> FinalReply | list[AgentAction]:
    """Return the actions of a reply in order, or the final reply if it calls nothing."""
    found, rest = _split_calls(text)
    calls = [_parse_call(call) for call in found]
    if CALL_START in rest or _CALL_END in rest:
        calls.append(MalformedAction("a <tool_call> block is not closed or not opened"))
    return calls or FinalReply(text)


def parse_hermes_reply(reply: str) -> ParsedReply:
    """Parse a reply after its thoughts; a reply that calls nothing is final."""
    if (text := strip_reasoning(reply)) is None:
        return ParsedReply([MalformedAction(UNCLOSED_REASONING)])
    actions = parse_tool_calls(text)
    return ParsedReply((), final=True) if isinstance(actions, FinalReply) else ParsedReply(actions)


def format_tool_messages(outcomes: Sequence[ActionOutcome]) -> list[ChatMessage]:
    """Return one ``tool`` message for each outcome."""
    return [{"role": "tool", "content": outcome.text} for outcome in outcomes]


@dataclass(frozen=True, slots=True)
class HermesAgent:
    """Calls any of ``tools``, as many times as it likes in one reply."""

    prompt: PromptTemplate
    tools: Toolset
    offered_tools: Toolset

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.tools)

    def parse_reply(self, reply: str) -> ParsedReply:
        return parse_hermes_reply(reply)

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        return format_tool_messages(outcomes)
