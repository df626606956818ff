"""Anthropic's messages: what is asked.

The field names are those of ``anthropic.types.message_create_params``; a test holds the names below against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Literal

import msgspec

from actors.agents.chat import Message
from actors.gateway.api import Call, Positive, StopText
from actors.gateway.asked import Asked, Refused, Tool
from actors.gateway.options import Options

_HARMLESS = frozenset(
    {"cache_control", "container", "context_management", "inference_geo", "metadata", "service_tier", "user_profile_id"}
)
OPTIONS = Options(harmless=_HARMLESS, neutral={"top_k": -1, "top_p": 1})


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    name: str
    input: dict[str, object]


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str


class UserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: str | list[TextBlock | ToolResultBlock]


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[TextBlock | ToolUseBlock | ThinkingBlock]


class FunctionTool(msgspec.Struct):
    name: str
    input_schema: dict[str, object]
    description: str | None = None
    type: Literal["custom"] | None = None


class ToolChoice(msgspec.Struct):
    type: Literal["auto", "none", "any", "tool"]
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    type: str


class OutputConfig(msgspec.Struct):
    format: dict[str, object] | None = None


class Request(msgspec.Struct):
    messages: Annotated[list[UserMessage | AssistantMessage], msgspec.Meta(min_length=1)]
    max_tokens: Positive | None = None
    """None only where tokens are counted."""
    model: str = ""
    system: str | list[TextBlock] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    temperature: float | None = None
    stop_sequences: list[StopText] | None = None
    stream: bool | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


def read(body: bytes) -> Call:
    """Raises :class:`Refused`."""
    request = OPTIONS.read(body, Request)
    if request.max_tokens is None:
        raise Refused("max_tokens is missing: say how many tokens the reply may have", parameter="max_tokens")
    return _call(request, len(body))


def read_to_count(body: bytes) -> Asked:
    """Of ``/v1/messages/count_tokens``.  Raises :class:`Refused`."""
    return _call(OPTIONS.read(body, Request), len(body)).asked


def _call(request: Request, size: int) -> Call:
    _check(request)
    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": _text(request.system)})
    for message in request.messages:
        messages += _of_user(message) if isinstance(message, UserMessage) else [_of_assistant(message)]
    return Call(
        asked=Asked(
            messages=messages,
            tools=tuple(Tool(each.name, each.description or "", each.input_schema) for each in request.tools or ()),
            may_call=request.tool_choice is None or request.tool_choice.type != "none",
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stop=tuple(request.stop_sequences or ()),
            size=size,
        ),
        stream=bool(request.stream),
        thoughts=request.thinking is not None and request.thinking.type != "disabled",
    )


def _check(request: Request) -> None:
    choice = request.tool_choice
    if choice and (choice.type in ("any", "tool") or choice.disable_parallel_tool_use):
        raise Refused(
            "a tool_choice that forces a call, or forbids a second, needs a grammar, under which the sampler draws "
            'from another distribution than the log-probabilities tell of: say {"type": "auto"}, or {"type": "none"}',
            parameter="tool_choice",
        )
    if request.output_config and request.output_config.format:
        raise Refused("output_config.format needs a grammar: leave it out", parameter="output_config")


def _of_user(message: UserMessage) -> Iterator[Message]:
    """Results of tools are messages of their own, in the order in which they and texts stand."""
    if isinstance(message.content, str):
        yield {"role": "user", "content": message.content}
        return
    if not message.content:
        yield {"role": "user", "content": ""}
    for is_text, blocks in groupby(message.content, lambda block: isinstance(block, TextBlock)):
        if is_text:
            yield {"role": "user", "content": _text([block for block in blocks if isinstance(block, TextBlock)])}
        else:
            yield from (_result(block) for block in blocks if isinstance(block, ToolResultBlock))


def _result(block: ToolResultBlock) -> Message:
    said = _text(block.content)
    return {"role": "tool", "content": f"Error: {said}" if block.is_error else said}


def _of_assistant(message: AssistantMessage) -> Message:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    blocks = message.content
    said: Message = {"role": "assistant", "content": _text([each for each in blocks if isinstance(each, TextBlock)])}
    if thoughts := "\n".join(each.thinking for each in blocks if isinstance(each, ThinkingBlock)):
        said["reasoning_content"] = thoughts
    if calls := [each for each in blocks if isinstance(each, ToolUseBlock)]:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": each.name, "arguments": each.input}} for each in calls
        ]
    return said


def _text(content: str | list[TextBlock] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content)
