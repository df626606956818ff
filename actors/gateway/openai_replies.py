"""Replies of OpenAI's chat completions, whole and as chunks; field names as in ``openai.types.chat``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from actors.gateway.api_types import ApiCall, ResponseMetadata, encode_json
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.completion import CompletionEndReason, GatewayCompletion, ParsedCompletion

OpenAIFinishReason = Literal["stop", "length", "tool_calls"]

_FINISH: dict[CompletionEndReason, OpenAIFinishReason] = {
    CompletionEndReason.END_OF_TURN: "stop",
    CompletionEndReason.STOP_TEXT: "stop",
    CompletionEndReason.LENGTH: "length",
    CompletionEndReason.TOOL_CALLS: "tool_calls",
}
_ERRORS = {401: "authentication_error", 403: "permission_error", 503: "server_error"}


class OpenAIReplyFunctionCall(msgspec.Struct, omit_defaults=True):
    arguments: str
    name: str | None = None


class OpenAIReplyToolCall(msgspec.Struct, omit_defaults=True):
    function: OpenAIReplyFunctionCall
    id: str | None = None
    type: Literal["function"] | None = None
    index: int | None = None
    """Index of the call; only in chunks."""


class OpenAIReplyMessage(msgspec.Struct, omit_defaults=True):
    """A whole message, or the delta of a chunk."""

    role: Literal["assistant"] | None = None
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | None = None
    tool_calls: list[OpenAIReplyToolCall] | None = None


class OpenAIChoice(msgspec.Struct):
    message: OpenAIReplyMessage
    finish_reason: OpenAIFinishReason
    index: int = 0
    logprobs: None = None


class OpenAIChunkChoice(msgspec.Struct):
    delta: OpenAIReplyMessage
    finish_reason: OpenAIFinishReason | None = None
    index: int = 0
    logprobs: None = None


class OpenAIPromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class OpenAIUsage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: OpenAIPromptTokensDetails


class OpenAIChatCompletion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[OpenAIChoice]
    usage: OpenAIUsage
    object: Literal["chat.completion"] = "chat.completion"


class OpenAIChatCompletionChunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[OpenAIChunkChoice]
    usage: OpenAIUsage | msgspec.UnsetType | None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class OpenAIModel(msgspec.Struct):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "longshore"


class OpenAIModelList(msgspec.Struct):
    data: list[OpenAIModel]
    object: Literal["list"] = "list"


class OpenAIError(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorBody(msgspec.Struct):
    error: OpenAIError


def encode_reply(call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> bytes:
    del call
    parsed = answer.parsed
    message = OpenAIReplyMessage(
        role="assistant",
        content=parsed.content or (None if parsed.tool_calls else ""),
        reasoning_content=parsed.thoughts or None,
        tool_calls=_calls(answer, named) or None,
    )
    choice = OpenAIChoice(message, _FINISH[answer.end_reason])
    return encode_json(OpenAIChatCompletion(_id(named), named.created, named.model, [choice], _usage(answer)))


class OpenAIStreamEncoder:
    """See :class:`actors.gateway.api_types.StreamEncoder`."""

    ping = b": ping\n\n"

    def __init__(self, call: ApiCall, named: ResponseMetadata) -> None:
        self._call, self._named = call, named
        self._begun = False
        self._thoughts = self._content = 0
        """Number of characters sent."""

    def encode_partial(self, parsed: ParsedCompletion, prompt_tokens: int) -> bytes:
        del prompt_tokens  # it is in the usage at the end
        thoughts, content = parsed.thoughts[self._thoughts :], parsed.content[self._content :]
        self._thoughts += len(thoughts)
        self._content += len(content)
        data = self._deltas([OpenAIReplyMessage(reasoning_content=thoughts)]) if thoughts else b""
        return data + self._deltas([OpenAIReplyMessage(content=content)]) if content else data

    def encode_end(self, answer: GatewayCompletion) -> bytes:
        data = self.encode_partial(answer.parsed, answer.prompt_tokens)
        data += self._deltas(_call_deltas(_calls(answer, self._named)))
        data += self._deltas([OpenAIReplyMessage()], _FINISH[answer.end_reason])
        if self._call.usage_in_stream:
            data += self._chunk([], _usage(answer))
        return data + b"data: [DONE]\n\n"

    def encode_failure(self, refused: GatewayRequestError) -> bytes:
        return b"data: %b\n\n" % encode_error(refused)

    def _deltas(self, deltas: Iterable[OpenAIReplyMessage], finish: OpenAIFinishReason | None = None) -> bytes:
        data = b"".join(self._chunk([OpenAIChunkChoice(delta, finish)]) for delta in deltas)
        if data and not self._begun:
            data = self._chunk([OpenAIChunkChoice(OpenAIReplyMessage(role="assistant", content=""))]) + data
            self._begun = True
        return data

    def _chunk(self, choices: list[OpenAIChunkChoice], usage: OpenAIUsage | None = None) -> bytes:
        named, sent_usage = self._named, usage if self._call.usage_in_stream else msgspec.UNSET
        return b"data: %b\n\n" % encode_json(
            OpenAIChatCompletionChunk(_id(named), named.created, named.model, choices, sent_usage)
        )


def stream_encoder(call: ApiCall, named: ResponseMetadata) -> OpenAIStreamEncoder:
    return OpenAIStreamEncoder(call, named)


def encode_models(names: list[str], created: int) -> bytes:
    return encode_json(OpenAIModelList([OpenAIModel(name, created) for name in names]))


def encode_model(name: str, created: int) -> bytes:
    return encode_json(OpenAIModel(name, created))


def encode_error(refused: GatewayRequestError) -> bytes:
    kind = _ERRORS.get(refused.status, "invalid_request_error")
    return encode_json(OpenAIErrorBody(OpenAIError(str(refused), kind, refused.parameter, refused.code)))


def _call_deltas(calls: list[OpenAIReplyToolCall]) -> Iterator[OpenAIReplyMessage]:
    """Yield for each call its beginning, then its arguments."""
    for index, call in enumerate(calls):
        begun = OpenAIReplyFunctionCall("", call.function.name)
        yield OpenAIReplyMessage(tool_calls=[OpenAIReplyToolCall(begun, call.id, "function", index)])
        yield OpenAIReplyMessage(
            tool_calls=[OpenAIReplyToolCall(OpenAIReplyFunctionCall(call.function.arguments), index=index)]
        )


def _calls(answer: GatewayCompletion, named: ResponseMetadata) -> list[OpenAIReplyToolCall]:
    return [
        OpenAIReplyToolCall(
            OpenAIReplyFunctionCall(msgspec.json.encode(call.arguments).decode(), call.name),
            f"call_{named.tool_call_id(index)}",
            "function",
        )
        for index, call in enumerate(answer.parsed.tool_calls)
    ]


def _usage(answer: GatewayCompletion) -> OpenAIUsage:
    prompt, sampled = answer.prompt_tokens, answer.sampled_tokens
    return OpenAIUsage(prompt, sampled, prompt + sampled, OpenAIPromptTokensDetails(answer.cached_tokens))


def _id(named: ResponseMetadata) -> str:
    return f"chatcmpl-{named.id}"
