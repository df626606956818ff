"""Anthropic's messages: what is answered, whole and as events; field names as in ``anthropic.types``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec

from actors.gateway.answer import Answer, Ending
from actors.gateway.api import Call, Named, encode
from actors.gateway.asked import Refused

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

_STOP: dict[Ending, StopReason] = {
    Ending.TURN: "end_turn",
    Ending.STOP_TEXT: "stop_sequence",
    Ending.LENGTH: "max_tokens",
    Ending.CALLS: "tool_use",
}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class Usage(msgspec.Struct):
    input_tokens: int
    """Those that were not cached."""
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class Message(msgspec.Struct, tag_field="type", tag="message"):
    id: str
    model: str
    content: list[Block]
    usage: Usage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: Message


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Block


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class Ended(msgspec.Struct):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: Ended
    usage: Usage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


class Counted(msgspec.Struct):
    input_tokens: int


class Model(msgspec.Struct, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str


class Models(msgspec.Struct):
    data: list[Model]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


class Error(msgspec.Struct):
    type: str
    message: str


class ErrorBody(msgspec.Struct, tag_field="type", tag="error"):
    error: Error


def whole(call: Call, answer: Answer, named: Named) -> bytes:
    message = _message(answer, named)
    message.content = list(_blocks(call, answer, named))
    message.stop_reason, message.stop_sequence = _STOP[answer.ending], answer.stop_text
    return encode(message)


def events(call: Call, answer: Answer, named: Named) -> Iterator[bytes]:
    for event in _events(call, answer, named):
        yield b"event: %b\ndata: %b\n\n" % (str(event.__struct_config__.tag).encode(), encode(event))


def models(names: list[str], created: int) -> bytes:
    ends = (names[0], names[-1]) if names else (None, None)
    return encode(Models([_model(name, created) for name in names], *ends))


def model(name: str, created: int) -> bytes:
    return encode(_model(name, created))


def counted(tokens: int) -> bytes:
    return encode(Counted(tokens))


def refusal(refused: Refused) -> bytes:
    return encode(ErrorBody(Error(_ERRORS.get(refused.status, "invalid_request_error"), str(refused))))


def _events(call: Call, answer: Answer, named: Named) -> Iterator[Event]:
    begun = _message(answer, named)
    begun.usage.output_tokens = 0
    yield MessageStart(begun)
    for index, block in enumerate(_blocks(call, answer, named)):
        match block:
            case TextBlock(text):
                empty, delta = TextBlock(""), TextDelta(text)
            case ThinkingBlock(thinking):
                empty, delta = ThinkingBlock(""), ThinkingDelta(thinking)
            case ToolUseBlock(name, tool, given):
                empty, delta = ToolUseBlock(name, tool, {}), InputDelta(msgspec.json.encode(given).decode())
        yield BlockStart(index, empty)
        yield BlockDelta(index, delta)
        yield BlockStop(index)
    yield MessageDelta(Ended(_STOP[answer.ending], answer.stop_text), _usage(answer))
    yield MessageStop()


def _message(answer: Answer, named: Named) -> Message:
    """With nothing in it yet."""
    return Message(f"msg_{named.id}", named.model, [], _usage(answer))


def _blocks(call: Call, answer: Answer, named: Named) -> Iterator[Block]:
    said = answer.said
    if said.thoughts and call.thoughts:
        yield ThinkingBlock(said.thoughts)
    if said.content or not said.calls:
        yield TextBlock(said.content)
    for index, each in enumerate(said.calls):
        yield ToolUseBlock(f"toolu_{named.call_id(index)}", each.name, each.arguments)


def _usage(answer: Answer) -> Usage:
    cached = answer.cached_tokens
    return Usage(answer.prompt_tokens - cached, answer.sampled_tokens, cached)


def _model(name: str, created: int) -> Model:
    return Model(name, name, datetime.fromtimestamp(created, UTC).isoformat())
