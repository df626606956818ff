"""Hermes tool calls: ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``, as Qwen models write them.

A reply without a call ends the episode.  A call that does not parse is reported to the model, never dropped silently,
and counted as malformed.  Each call is answered by a message of its own, with the role ``tool``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from actors.agents.agent import ActionOutcome, AgentAction, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.call_format import CallFormat, CallSpan, ReadCalls
from actors.agents.json_objects import InvalidObjectError, find_json_end, read_json
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, SplitReply, split_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

CALL_START, _CALL_END = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"\s*+(?=\{)")


@dataclass(frozen=True, slots=True)
class FinalReply:
    """The agent's final reply."""

    text: str


def _parse_call(text: str) -> AgentAction:
    try:
        value = read_json(text)
    except InvalidObjectError as error:
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
        if (end := _call_end(text, begin)) < 0:
            break
        rest.append(text[at:begin])
        calls.append(text[begin + len(CALL_START) : end].strip())
        at = end + len(_CALL_END)
    return _SplitReply(calls, "".join((*rest, text[at:])).strip())


def _call_end(text: str, begin: int) -> int:
    """Return where the mark is with which the call at ``begin`` ends; -1 if it does not end."""
    return text.find(_CALL_END, _json_end(text, begin + len(CALL_START)))


def _json_end(text: str, begin: int) -> int:
    """Return where the JSON at ``begin`` ends, whose strings may contain markers; ``begin`` if it is none."""
    try:
        return find_json_end(text, found.end()) if (found := _SPACE.match(text, begin)) else begin
    except InvalidObjectError:
        return begin


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


class HermesFormat:
    """Hermes calls as a :class:`CallFormat`."""

    marks = (CALL_START,)

    def split_thoughts(self, reply: str, *, opened: bool = False) -> SplitReply:
        return split_reasoning(reply, opened=opened)

    def read(self, text: str, tools: Sequence[object]) -> ReadCalls:
        """Read a reply after its thoughts; calls of other tools than ``tools`` are read too."""
        del tools
        actions = parse_tool_calls(text)
        if isinstance(actions, FinalReply):
            return ReadCalls((), text)
        return ReadCalls(actions, text_outside_calls(text))

    def find_first_call(self, text: str) -> CallSpan:
        begin = text.index(CALL_START)
        return CallSpan(begin, _call_end(text, begin) + len(_CALL_END))


HERMES = HermesFormat()


def parse_calling_reply(reply: str, calls: CallFormat, tools: Toolset) -> ParsedReply:
    """Parse a reply after its thoughts; a reply that calls nothing is final."""
    split = calls.split_thoughts(reply)
    if not split.closed:
        return ParsedReply([MalformedAction(UNCLOSED_REASONING)])
    actions = calls.read(split.answer, [tool.schema for tool in tools.values()]).actions
    return ParsedReply(actions, final=not actions)


def format_tool_messages(outcomes: Sequence[ActionOutcome]) -> list[ChatMessage]:
    """Return one ``tool`` message for each outcome."""
    return [_tool_message(outcome) for outcome in outcomes]


def _tool_message(outcome: ActionOutcome) -> ChatMessage:
    message: ChatMessage = {"role": "tool", "content": outcome.text}
    if isinstance(call := outcome.action, AgentToolCall):
        message["name"] = call.name
        if call.id:
            message["tool_call_id"] = call.id
    return message


@dataclass(frozen=True, slots=True)
class HermesAgent:
    """Calls any of ``tools``, as many times as it likes in one reply."""

    prompt: PromptTemplate
    tools: Toolset
    offered_tools: Toolset
    calls: CallFormat = HERMES
    """The format of the model's calls."""

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.tools)

    def parse_reply(self, reply: str) -> ParsedReply:
        return parse_calling_reply(reply, self.calls, self.tools)

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        return format_tool_messages(outcomes)
