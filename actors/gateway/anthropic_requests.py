"""Requests of Anthropic's messages API.

Field names are those of ``anthropic.types.message_create_params``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal

import msgspec

from actors.gateway.api_types import ApiCall, Positive, StopText
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError, UnseenPart, refuse_opening_parts
from actors.gateway.request_options import RequestOptionRules, forced_call_refused
from actors.gateway.tool_results import IdentifiedMessage, order_tool_results
from actors.tokens.chat_messages import ChatMessage

_HARMLESS = frozenset(
    {"cache_control", "container", "context_management", "inference_geo", "metadata", "service_tier", "user_profile_id"}
)
ANTHROPIC_OPTIONS = RequestOptionRules(harmless=_HARMLESS, neutral={"top_k": -1, "top_p": 1})


class AnthropicRequestTextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class AnthropicImageBlock(UnseenPart, tag_field="type", tag="image"):
    what = "an image"


class AnthropicDocumentBlock(UnseenPart, tag_field="type", tag="document"):
    what = "a document"


class AnthropicSearchResultBlock(UnseenPart, tag_field="type", tag="search_result"):
    what = "a search result"


class AnthropicUploadBlock(UnseenPart, tag_field="type", tag="container_upload"):
    what = "an uploaded file"


class AnthropicToolReferenceBlock(msgspec.Struct, tag_field="type", tag="tool_reference"):
    tool_name: str


class AnthropicRequestToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    name: str
    input: dict[str, object]
    id: str = ""


class AnthropicRequestThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str


class AnthropicRedactedThinkingBlock(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    """Thoughts that only another model's server can read."""


AnthropicTexts = str | list[AnthropicRequestTextBlock] | None
AnthropicShownBlock = (
    AnthropicRequestTextBlock
    | AnthropicImageBlock
    | AnthropicDocumentBlock
    | AnthropicSearchResultBlock
    | AnthropicUploadBlock
    | AnthropicToolReferenceBlock
)
AnthropicContent = str | list[AnthropicShownBlock] | None


class AnthropicToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    content: AnthropicContent = None
    is_error: bool | None = None
    tool_use_id: str = ""


class AnthropicSystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    content: AnthropicContent


class AnthropicUserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: str | list[AnthropicShownBlock | AnthropicToolResultBlock]


class AnthropicAssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: (
        str
        | list[
            AnthropicRequestTextBlock
            | AnthropicRequestToolUseBlock
            | AnthropicRequestThinkingBlock
            | AnthropicRedactedThinkingBlock
        ]
    )


AnthropicRequestMessage = AnthropicSystemMessage | AnthropicUserMessage | AnthropicAssistantMessage


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
    messages: Annotated[list[AnthropicRequestMessage], msgspec.Meta(min_length=1)]
    max_tokens: Positive | None = None
    """Maximum number of tokens of the reply; None only in requests that count tokens."""
    model: str = ""
    system: AnthropicTexts = None
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
    return _call(request)


def read_count_tokens_request(body: bytes) -> ChatRequest:
    """Read a request of ``/v1/messages/count_tokens``.  Raises :class:`GatewayRequestError`."""
    return _call(ANTHROPIC_OPTIONS.read_request(body, AnthropicMessagesRequest)).request


def _call(request: AnthropicMessagesRequest) -> ApiCall:
    _check(request)
    system = [IdentifiedMessage(_system_message(request.system))] if request.system else []
    messages = [each for message in request.messages for each in _messages(message)]
    choice = request.tool_choice
    return ApiCall(
        request=ChatRequest(
            messages=order_tool_results([*system, *messages]),
            tools=tuple(ChatTool(each.name, each.description or "", each.input_schema) for each in request.tools or ()),
            may_call=choice is None or choice.type != "none",
            one_call=choice is not None and bool(choice.disable_parallel_tool_use),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stop=tuple(request.stop_sequences or ()),
        ),
        stream=bool(request.stream),
        thoughts=request.thinking is not None and request.thinking.type != "disabled",
    )


def _check(request: AnthropicMessagesRequest) -> None:
    if request.tool_choice and request.tool_choice.type in ("any", "tool"):
        raise forced_call_refused('{"type": "auto"} or {"type": "none"}')
    if request.output_config and request.output_config.format:
        raise GatewayRequestError("output_config.format needs a grammar: leave it out", parameter="output_config")
    contents = (
        None if isinstance(message, AnthropicAssistantMessage) else message.content or ()
        for message in request.messages
    )
    refuse_opening_parts(contents)


def _messages(message: AnthropicRequestMessage) -> Iterable[IdentifiedMessage]:
    match message:
        case AnthropicSystemMessage():
            return [IdentifiedMessage(_system_message(message.content))]
        case AnthropicUserMessage():
            return _user_messages(message)
        case AnthropicAssistantMessage():
            return [_assistant_message(message)]


def _system_message(content: str | Sequence[AnthropicShownBlock] | None) -> ChatMessage:
    return {"role": "system", "content": _text(content)}


def _user_messages(message: AnthropicUserMessage) -> Iterator[IdentifiedMessage]:
    """Yield tool results as separate messages, in the order of the blocks."""
    if isinstance(message.content, str) or not message.content:
        yield IdentifiedMessage(
            {"role": "user", "content": message.content if isinstance(message.content, str) else ""}
        )
        return
    for is_result, blocks in groupby(message.content, lambda block: isinstance(block, AnthropicToolResultBlock)):
        if is_result:
            yield from (_result(block) for block in blocks if isinstance(block, AnthropicToolResultBlock))
        else:
            shown = [block for block in blocks if not isinstance(block, AnthropicToolResultBlock)]
            yield IdentifiedMessage({"role": "user", "content": _text(shown)})


def _result(block: AnthropicToolResultBlock) -> IdentifiedMessage:
    text = _text(block.content)
    message: ChatMessage = {"role": "tool", "content": f"Error: {text}" if block.is_error else text}
    return IdentifiedMessage(message, result_of=block.tool_use_id)


def _assistant_message(message: AnthropicAssistantMessage) -> IdentifiedMessage:
    if isinstance(message.content, str):
        return IdentifiedMessage({"role": "assistant", "content": message.content})
    blocks = message.content
    reply: ChatMessage = {
        "role": "assistant",
        "content": _text([each for each in blocks if isinstance(each, AnthropicRequestTextBlock)]),
    }
    if thoughts := "\n".join(each.thinking for each in blocks if isinstance(each, AnthropicRequestThinkingBlock)):
        reply["reasoning_content"] = thoughts
    calls = [each for each in blocks if isinstance(each, AnthropicRequestToolUseBlock)]
    if calls:
        reply["tool_calls"] = [
            {"type": "function", "function": {"name": each.name, "arguments": each.input}} for each in calls
        ]
    return IdentifiedMessage(reply, [each.id for each in calls])


def _text(content: str | Sequence[AnthropicShownBlock] | None) -> str:
    return content or "" if content is None or isinstance(content, str) else "\n".join(map(_block_text, content))


def _block_text(block: AnthropicShownBlock) -> str:
    match block:
        case AnthropicRequestTextBlock() | UnseenPart():
            return block.text
        case AnthropicToolReferenceBlock():
            return f"Tool found: {block.tool_name}"
