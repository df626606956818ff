"""Hermes tool calls: ``<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>``, as Qwen models write them.

A reply without a call ends the episode.  A call that does not parse is reported to the model, never dropped in silence,
and counted as malformed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

import orjson

OPENS_CALL = "<tool_call>"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A call that did not parse, and why: the model is told."""

    reason: str


@dataclass(frozen=True, slots=True)
class Final:
    """The agent's last word."""

    text: str


Action = ToolCall | Malformed


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


def beside_calls(text: str) -> str:
    """What a reply says beside its calls."""
    return _CALL.sub("", text).strip()


def parse(text: str) -> Final | list[Action]:
    """The actions in a reply, in order, or its last word when it calls nothing."""
    calls = [_parse_call(found) for found in _CALL.findall(text)]
    if calls:
        return calls
    if OPENS_CALL in text or "</tool_call>" in text:
        return [Malformed("a <tool_call> block is not closed or not opened")]
    return Final(text)
