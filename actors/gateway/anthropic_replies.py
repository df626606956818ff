"""Anthropic's messages: what is answered, whole and as events; field names as in ``anthropic.types``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec

from actors.gateway.answer import Answer, Ending, Said
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


Delta = TextDelta | ThinkingDelta | InputDelta


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
    delta: Delta


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
    content = list(_blocks(call, answer.said, named))
    stopped = _STOP[answer.ending], answer.stop_text
    return encode(Message(f"msg_{named.id}", named.model, content, _usage(answer), *stopped))


class Events:
    """See :class:`actors.gateway.api.Events`."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, call: Call, named: Named) -> None:
        self._call, self._named = call, named
        self._told: list[int] = []
        """Characters of each block that was begun; all but the last are over."""

    def more(self, said: Said, prompt_tokens: int) -> bytes:
        blocks = [block for block in _blocks(self._call, said, self._named) if block != TextBlock("")]
        return _encoded(self._grown(blocks, prompt_tokens))

    def end(self, answer: Answer) -> bytes:
        blocks = list(_blocks(self._call, answer.said, self._named))
        told = _encoded(self._grown(blocks, answer.prompt_tokens))
        stopped = Ended(_STOP[answer.ending], answer.stop_text)
        return told + _encoded([BlockStop(len(blocks) - 1), MessageDelta(stopped, _usage(answer)), MessageStop()])

    def failed(self, refused: Refused) -> bytes:
        return _encoded([_error(refused)])

    def _grown(self, blocks: list[Block], prompt_tokens: int) -> Iterator[Event]:
        """What was told are the beginnings of these."""
        if blocks and not self._told:
            usage = Usage(prompt_tokens, 0, 0)  # what was cached is known at the end
            yield MessageStart(Message(f"msg_{self._named.id}", self._named.model, [], usage))
        for index, block in enumerate(blocks):
            begun, text, delta = _pieces(block)
            if index == len(self._told):
                if index:
                    yield BlockStop(index - 1)
                yield BlockStart(index, begun)
                self._told.append(0)
            if new := text[self._told[index] :]:
                yield BlockDelta(index, delta(new))
                self._told[index] += len(new)


def events(call: Call, named: Named) -> Events:
    return Events(call, named)


def models(names: list[str], created: int) -> bytes:
    ends = (names[0], names[-1]) if names else (None, None)
    return encode(Models([_model(name, created) for name in names], *ends))


def model(name: str, created: int) -> bytes:
    return encode(_model(name, created))


def counted(tokens: int) -> bytes:
    return encode(Counted(tokens))


def refusal(refused: Refused) -> bytes:
    return encode(_error(refused))


def _error(refused: Refused) -> ErrorBody:
    return ErrorBody(Error(_ERRORS.get(refused.status, "invalid_request_error"), str(refused)))


def _encoded(events: Iterable[Event | ErrorBody]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (str(event.__struct_config__.tag).encode(), encode(event)) for event in events
    )


def _pieces(block: Block) -> tuple[Block, str, Callable[[str], Delta]]:
    """A block begun, what it is filled with, and how."""
    match block:
        case TextBlock(text):
            return TextBlock(""), text, TextDelta
        case ThinkingBlock(thinking):
            return ThinkingBlock(""), thinking, ThinkingDelta
        case ToolUseBlock(name, tool, given):
            return ToolUseBlock(name, tool, {}), msgspec.json.encode(given).decode(), InputDelta


def _blocks(call: Call, said: Said, named: Named) -> Iterator[Block]:
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
