"""Replies of Anthropic's messages API, whole and as events; field names as in ``anthropic.types``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec

from actors.gateway.api_types import ApiCall, ResponseMetadata, encode_json
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.completion import CompletionEndReason, GatewayCompletion, ParsedCompletion

AnthropicStopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

_STOP: dict[CompletionEndReason, AnthropicStopReason] = {
    CompletionEndReason.END_OF_TURN: "end_turn",
    CompletionEndReason.STOP_TEXT: "stop_sequence",
    CompletionEndReason.LENGTH: "max_tokens",
    CompletionEndReason.TOOL_CALLS: "tool_use",
}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


class AnthropicTextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class AnthropicThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


class AnthropicToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object]


AnthropicBlock = AnthropicTextBlock | AnthropicThinkingBlock | AnthropicToolUseBlock


class AnthropicTextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class AnthropicThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class AnthropicInputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


AnthropicDelta = AnthropicTextDelta | AnthropicThinkingDelta | AnthropicInputDelta


class AnthropicUsage(msgspec.Struct):
    input_tokens: int
    """Prompt tokens that were not cached."""
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class AnthropicMessage(msgspec.Struct, tag_field="type", tag="message"):
    id: str
    model: str
    content: list[AnthropicBlock]
    usage: AnthropicUsage
    stop_reason: AnthropicStopReason | None = None
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"


class AnthropicMessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: AnthropicMessage


class AnthropicBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: AnthropicBlock


class AnthropicBlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: AnthropicDelta


class AnthropicBlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class AnthropicStop(msgspec.Struct):
    stop_reason: AnthropicStopReason
    stop_sequence: str | None


class AnthropicMessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: AnthropicStop
    usage: AnthropicUsage


class AnthropicMessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


AnthropicEvent = (
    AnthropicMessageStart
    | AnthropicBlockStart
    | AnthropicBlockDelta
    | AnthropicBlockStop
    | AnthropicMessageDelta
    | AnthropicMessageStop
)


class AnthropicTokenCount(msgspec.Struct):
    input_tokens: int


class AnthropicModel(msgspec.Struct, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str


class AnthropicModelList(msgspec.Struct):
    data: list[AnthropicModel]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


class AnthropicError(msgspec.Struct):
    type: str
    message: str


class AnthropicErrorBody(msgspec.Struct, tag_field="type", tag="error"):
    error: AnthropicError


def encode_reply(call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> bytes:
    content = list(_blocks(call, answer.parsed, named))
    stopped = _STOP[answer.end_reason], answer.stop_text
    return encode_json(AnthropicMessage(f"msg_{named.id}", named.model, content, _usage(answer), *stopped))


class AnthropicStreamEncoder:
    """See :class:`actors.gateway.api_types.StreamEncoder`."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, call: ApiCall, named: ResponseMetadata) -> None:
        self._call, self._named = call, named
        self._sent: list[int] = []
        """Characters sent of each block; all but the last block are complete."""

    def encode_partial(self, parsed: ParsedCompletion, prompt_tokens: int) -> bytes:
        blocks = [block for block in _blocks(self._call, parsed, self._named) if block != AnthropicTextBlock("")]
        return _encoded(self._grown(blocks, prompt_tokens))

    def encode_end(self, answer: GatewayCompletion) -> bytes:
        blocks = list(_blocks(self._call, answer.parsed, self._named))
        data = _encoded(self._grown(blocks, answer.prompt_tokens))
        stopped = AnthropicStop(_STOP[answer.end_reason], answer.stop_text)
        return data + _encoded(
            [
                AnthropicBlockStop(len(blocks) - 1),
                AnthropicMessageDelta(stopped, _usage(answer)),
                AnthropicMessageStop(),
            ]
        )

    def encode_failure(self, refused: GatewayRequestError) -> bytes:
        return _encoded([_error(refused)])

    def _grown(self, blocks: list[AnthropicBlock], prompt_tokens: int) -> Iterator[AnthropicEvent]:
        """Yield the events that extend the blocks sent so far to ``blocks``."""
        if blocks and not self._sent:
            usage = AnthropicUsage(prompt_tokens, 0, 0)  # the number of cached tokens is known at the end
            yield AnthropicMessageStart(AnthropicMessage(f"msg_{self._named.id}", self._named.model, [], usage))
        for index, block in enumerate(blocks):
            begun, text, delta = _pieces(block)
            if index == len(self._sent):
                if index:
                    yield AnthropicBlockStop(index - 1)
                yield AnthropicBlockStart(index, begun)
                self._sent.append(0)
            if new := text[self._sent[index] :]:
                yield AnthropicBlockDelta(index, delta(new))
                self._sent[index] += len(new)


def stream_encoder(call: ApiCall, named: ResponseMetadata) -> AnthropicStreamEncoder:
    return AnthropicStreamEncoder(call, named)


def encode_models(names: list[str], created: int) -> bytes:
    ends = (names[0], names[-1]) if names else (None, None)
    return encode_json(AnthropicModelList([_model(name, created) for name in names], *ends))


def encode_model(name: str, created: int) -> bytes:
    return encode_json(_model(name, created))


def encode_token_count(tokens: int) -> bytes:
    return encode_json(AnthropicTokenCount(tokens))


def encode_error(refused: GatewayRequestError) -> bytes:
    return encode_json(_error(refused))


def _error(refused: GatewayRequestError) -> AnthropicErrorBody:
    return AnthropicErrorBody(AnthropicError(_ERRORS.get(refused.status, "invalid_request_error"), str(refused)))


def _encoded(events: Iterable[AnthropicEvent | AnthropicErrorBody]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (str(event.__struct_config__.tag).encode(), encode_json(event)) for event in events
    )


def _pieces(block: AnthropicBlock) -> tuple[AnthropicBlock, str, Callable[[str], AnthropicDelta]]:
    """Return an empty block, the text that fills it, and the type of its deltas."""
    match block:
        case AnthropicTextBlock(text):
            return AnthropicTextBlock(""), text, AnthropicTextDelta
        case AnthropicThinkingBlock(thinking):
            return AnthropicThinkingBlock(""), thinking, AnthropicThinkingDelta
        case AnthropicToolUseBlock(name, tool, given):
            return AnthropicToolUseBlock(name, tool, {}), msgspec.json.encode(given).decode(), AnthropicInputDelta


def _blocks(call: ApiCall, parsed: ParsedCompletion, named: ResponseMetadata) -> Iterator[AnthropicBlock]:
    if parsed.thoughts and call.thoughts:
        yield AnthropicThinkingBlock(parsed.thoughts)
    if parsed.content or not parsed.tool_calls:
        yield AnthropicTextBlock(parsed.content)
    for index, each in enumerate(parsed.tool_calls):
        yield AnthropicToolUseBlock(f"toolu_{named.tool_call_id(index)}", each.name, each.arguments)


def _usage(answer: GatewayCompletion) -> AnthropicUsage:
    cached = answer.cached_tokens
    return AnthropicUsage(answer.prompt_tokens - cached, answer.sampled_tokens, cached)


def _model(name: str, created: int) -> AnthropicModel:
    return AnthropicModel(name, name, datetime.fromtimestamp(created, UTC).isoformat())
