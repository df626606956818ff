"""Requests of Anthropic's messages API.

Field names are those of ``anthropic.types.message_create_params``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Literal

import msgspec

from actors.gateway.api_types import ApiCall, Positive, StopText
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError
from actors.gateway.request_options import RequestOptionRules
from actors.tokens.chat_format import ChatMessage

_HARMLESS = frozenset(
    {"cache_control", "container", "context_management", "inference_geo", "metadata", "service_tier", "user_profile_id"}
)
ANTHROPIC_OPTIONS = RequestOptionRules(harmless=_HARMLESS, neutral={"top_k": -1, "top_p": 1})


class AnthropicRequestTextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class AnthropicRequestToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    name: str
    input: dict[str, object]


class AnthropicToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    content: str | list[AnthropicRequestTextBlock] | None = None
    is_error: bool | None = None


class AnthropicRequestThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str


class AnthropicUserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: str | list[AnthropicRequestTextBlock | AnthropicToolResultBlock]


class AnthropicAssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[AnthropicRequestTextBlock | AnthropicRequestToolUseBlock | AnthropicRequestThinkingBlock]


class AnthropicTool(msgspec.Struct):
    name: str
    input_schema: dict[str, object]
    description: str | None = None
    type: Literal["custom"] | None = None


class AnthropicToolChoice(msgspec.Struct):
    type: Literal["auto", "none", "any", "tool"]
    disable_parallel_tool_use: bool | None = None


class AnthropicThinkingOption(msgspec.Struct):
    type: str


class AnthropicOutputConfig(msgspec.Struct):
    format: dict[str, object] | None = None


class AnthropicMessagesRequest(msgspec.Struct):
    messages: Annotated[list[AnthropicUserMessage | AnthropicAssistantMessage], msgspec.Meta(min_length=1)]
    max_tokens: Positive | None = None
    """Maximum number of tokens of the reply; None only in requests that count tokens."""
    model: str = ""
    system: str | list[AnthropicRequestTextBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    temperature: float | None = None
    stop_sequences: list[StopText] | None = None
    stream: bool | None = None
    thinking: AnthropicThinkingOption | None = None
    output_config: AnthropicOutputConfig | None = None


def read_anthropic_request(body: bytes) -> ApiCall:
    """Read a request for a reply.  Raises :class:`GatewayRequestError`."""
    request = ANTHROPIC_OPTIONS.read_request(body, AnthropicMessagesRequest)
    if request.max_tokens is None:
        raise GatewayRequestError(
            "max_tokens is missing: set the maximum number of tokens of the reply", parameter="max_tokens"
        )
    return _call(request, len(body))


def read_count_tokens_request(body: bytes) -> ChatRequest:
    """Read a request of ``/v1/messages/count_tokens``.  Raises :class:`GatewayRequestError`."""
    return _call(ANTHROPIC_OPTIONS.read_request(body, AnthropicMessagesRequest), len(body)).request


def _call(request: AnthropicMessagesRequest, size: int) -> ApiCall:
    _check(request)
    messages: list[ChatMessage] = []
    if request.system:
        messages.append({"role": "system", "content": _text(request.system)})
    for message in request.messages:
        messages += (
            _user_messages(message) if isinstance(message, AnthropicUserMessage) else [_assistant_message(message)]
        )
    return ApiCall(
        request=ChatRequest(
            messages=messages,
            tools=tuple(ChatTool(each.name, each.description or "", each.input_schema) for each in request.tools or ()),
            may_call=request.tool_choice is None or request.tool_choice.type != "none",
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stop=tuple(request.stop_sequences or ()),
            body_bytes=size,
        ),
        stream=bool(request.stream),
        thoughts=request.thinking is not None and request.thinking.type != "disabled",
    )


def _check(request: AnthropicMessagesRequest) -> None:
    choice = request.tool_choice
    if choice and (choice.type in ("any", "tool") or choice.disable_parallel_tool_use):
        raise GatewayRequestError(
            "a tool_choice that forces a call, or forbids a second, needs a grammar, with which the sampler draws from "
            'another distribution than the log-probabilities describe: use {"type": "auto"} or {"type": "none"}',
            parameter="tool_choice",
        )
    if request.output_config and request.output_config.format:
        raise GatewayRequestError("output_config.format needs a grammar: leave it out", parameter="output_config")


def _user_messages(message: AnthropicUserMessage) -> Iterator[ChatMessage]:
    """Yield tool results as separate messages, in the order of the blocks."""
    if isinstance(message.content, str):
        yield {"role": "user", "content": message.content}
        return
    if not message.content:
        yield {"role": "user", "content": ""}
    for is_text, blocks in groupby(message.content, lambda block: isinstance(block, AnthropicRequestTextBlock)):
        if is_text:
            yield {
                "role": "user",
                "content": _text([block for block in blocks if isinstance(block, AnthropicRequestTextBlock)]),
            }
        else:
            yield from (_result(block) for block in blocks if isinstance(block, AnthropicToolResultBlock))


def _result(block: AnthropicToolResultBlock) -> ChatMessage:
    text = _text(block.content)
    return {"role": "tool", "content": f"Error: {text}" if block.is_error else text}


def _assistant_message(message: AnthropicAssistantMessage) -> ChatMessage:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    blocks = message.content
    reply: ChatMessage = {
        "role": "assistant",
        "content": _text([each for each in blocks if isinstance(each, AnthropicRequestTextBlock)]),
    }
    if thoughts := "\n".join(each.thinking for each in blocks if isinstance(each, AnthropicRequestThinkingBlock)):
        reply["reasoning_content"] = thoughts
    if calls := [each for each in blocks if isinstance(each, AnthropicRequestToolUseBlock)]:
        reply["tool_calls"] = [
            {"type": "function", "function": {"name": each.name, "arguments": each.input}} for each in calls
        ]
    return reply


def _text(content: str | list[AnthropicRequestTextBlock] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content)
