"""Messages in the form that chat templates expect."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class FunctionCall(TypedDict):
    """A function and its arguments."""

    name: str
    arguments: dict[str, object]


class ToolCallMessage(TypedDict):
    """A tool call in the form that templates expect."""

    type: Literal["function"]
    function: FunctionCall
    id: NotRequired[str]
    """As the model wrote it."""


class ChatMessage(TypedDict):
    """A message in the form that templates expect."""

    role: str
    content: str
    reasoning_content: NotRequired[str]
    """The assistant's thoughts; ``content`` may hold them too, between ``<think>`` and ``</think>``."""
    thinking: NotRequired[str]
    """The same for gpt-oss' template, which refuses it beside content and calls."""
    tool_calls: NotRequired[list[ToolCallMessage]]
    name: NotRequired[str]
    """A result's tool."""
    tool_call_id: NotRequired[str]
    """Id of a result's call, as the model wrote it."""
