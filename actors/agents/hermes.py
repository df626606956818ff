"""Hermes tool calls: ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``, as Qwen models write them.

A reply without a call ends the episode.  A call that does not parse is reported to the model, never dropped in silence,
and counted as malformed.  Each call is answered by a message of its own, in the role ``tool``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import orjson

from actors.agents.agent import Action, Malformed, Outcome, Reading, ToolCall, opening
from actors.agents.chat import Message
from actors.agents.prompt import Prompt
from actors.agents.thoughts import UNENDED, spoken
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

OPENS_CALL, _CLOSES_CALL = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Final:
    """The agent's last word."""

    text: str


def _parse_call(text: str) -> Action:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return Malformed(f"the tool call is not valid JSON: {error}")
    if not isinstance(value, dict):
        return Malformed("the tool call is not a JSON object")
    call = cast("dict[str, object]", value)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str):
        return Malformed('the tool call has no "name"')
    if not isinstance(arguments, dict):
        return Malformed('the tool call\'s "arguments" is not an object')
    return ToolCall(name, cast("dict[str, object]", arguments))


class _Parted(NamedTuple):
    calls: list[str]
    """What stands in each."""
    rest: str


def _parted(text: str) -> _Parted:
    """In time that grows with the text alone: a policy may write any number of blanks and of marks."""
    calls: list[str] = []
    rest: list[str] = []
    at = 0
    while (begin := text.find(OPENS_CALL, at)) >= 0:
        end = text.find(_CLOSES_CALL, begin)
        if end < 0:
            break
        rest.append(text[at:begin])
        calls.append(text[begin + len(OPENS_CALL) : end].strip())
        at = end + len(_CLOSES_CALL)
    return _Parted(calls, "".join((*rest, text[at:])).strip())


def beside_calls(text: str) -> str:
    """What a reply says beside its calls."""
    return _parted(text).rest


def parse(text: str) -> Final | list[Action]:
    """The actions in a reply, in order, or its last word when it calls nothing."""
    found, rest = _parted(text)
    calls = [_parse_call(call) for call in found]
    if OPENS_CALL in rest or _CLOSES_CALL in rest:
        calls.append(Malformed("a <tool_call> block is not closed or not opened"))
    return calls or Final(text)


def read_calls(reply: str) -> Reading:
    """What a reply calls once it has thought; one that calls nothing is final."""
    if (said := spoken(reply)) is None:
        return Reading([Malformed(UNENDED)])
    actions = parse(said)
    return Reading((), final=True) if isinstance(actions, Final) else Reading(actions)


def tell_calls(outcomes: Sequence[Outcome]) -> list[Message]:
    return [{"role": "tool", "content": outcome.text} for outcome in outcomes]


@dataclass(frozen=True, slots=True)
class HermesAgent:
    """Calls any of ``tools``, as many as it likes in one reply."""

    prompt: Prompt
    tools: Toolset
    offered: Toolset

    def opening(self, task: Task) -> list[Message]:
        return opening(self.prompt, task, self.tools)

    def read(self, reply: str) -> Reading:
        return read_calls(reply)

    def tell(self, outcomes: Sequence[Outcome]) -> list[Message] | None:
        return tell_calls(outcomes)
