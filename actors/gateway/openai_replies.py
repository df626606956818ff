"""OpenAI's chat completions: what is answered, whole and as chunks; field names as in ``openai.types.chat``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from actors.gateway.answer import Answer, Ending, Said
from actors.gateway.api import Call, Named, encode
from actors.gateway.asked import Refused

FinishReason = Literal["stop", "length", "tool_calls"]

_FINISH: dict[Ending, FinishReason] = {
    Ending.TURN: "stop",
    Ending.STOP_TEXT: "stop",
    Ending.LENGTH: "length",
    Ending.CALLS: "tool_calls",
}
_ERRORS = {401: "authentication_error", 403: "permission_error", 503: "server_error"}


class CalledFunction(msgspec.Struct, omit_defaults=True):
    arguments: str
    name: str | None = None


class ToolCall(msgspec.Struct, omit_defaults=True):
    function: CalledFunction
    id: str | None = None
    type: Literal["function"] | None = None
    index: int | None = None
    """In chunks."""


class Message(msgspec.Struct, omit_defaults=True):
    """A whole message, or in a chunk what comes to it."""

    role: Literal["assistant"] | None = None
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct):
    message: Message
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class ChunkChoice(msgspec.Struct):
    delta: Message
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Completion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class Chunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class Model(msgspec.Struct):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "longshore"


class Models(msgspec.Struct):
    data: list[Model]
    object: Literal["list"] = "list"


class Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: Error


def whole(call: Call, answer: Answer, named: Named) -> bytes:
    del call
    said = answer.said
    message = Message(
        role="assistant",
        content=said.content or (None if said.calls else ""),
        reasoning_content=said.thoughts or None,
        tool_calls=_calls(answer, named) or None,
    )
    choice = Choice(message, _FINISH[answer.ending])
    return encode(Completion(_id(named), named.created, named.model, [choice], _usage(answer)))


class Events:
    """See :class:`actors.gateway.api.Events`."""

    ping = b": ping\n\n"

    def __init__(self, call: Call, named: Named) -> None:
        self._call, self._named = call, named
        self._begun = False
        self._thoughts = self._content = 0
        """Characters told."""

    def more(self, said: Said, prompt_tokens: int) -> bytes:
        del prompt_tokens  # which the usage at the end tells
        thoughts, content = said.thoughts[self._thoughts :], said.content[self._content :]
        self._thoughts += len(thoughts)
        self._content += len(content)
        told = self._deltas([Message(reasoning_content=thoughts)]) if thoughts else b""
        return told + self._deltas([Message(content=content)]) if content else told

    def end(self, answer: Answer) -> bytes:
        told = self.more(answer.said, answer.prompt_tokens)
        told += self._deltas(_call_deltas(_calls(answer, self._named)))
        told += self._deltas([Message()], _FINISH[answer.ending])
        if self._call.usage_in_stream:
            told += self._chunk([], _usage(answer))
        return told + b"data: [DONE]\n\n"

    def failed(self, refused: Refused) -> bytes:
        return b"data: %b\n\n" % refusal(refused)

    def _deltas(self, deltas: Iterable[Message], finish: FinishReason | None = None) -> bytes:
        told = b"".join(self._chunk([ChunkChoice(delta, finish)]) for delta in deltas)
        if told and not self._begun:
            told = self._chunk([ChunkChoice(Message(role="assistant", content=""))]) + told
            self._begun = True
        return told

    def _chunk(self, choices: list[ChunkChoice], usage: Usage | None = None) -> bytes:
        named, told = self._named, usage if self._call.usage_in_stream else msgspec.UNSET
        return b"data: %b\n\n" % encode(Chunk(_id(named), named.created, named.model, choices, told))


def events(call: Call, named: Named) -> Events:
    return Events(call, named)


def models(names: list[str], created: int) -> bytes:
    return encode(Models([Model(name, created) for name in names]))


def model(name: str, created: int) -> bytes:
    return encode(Model(name, created))


def refusal(refused: Refused) -> bytes:
    kind = _ERRORS.get(refused.status, "invalid_request_error")
    return encode(ErrorBody(Error(str(refused), kind, refused.parameter, refused.code)))


def _call_deltas(calls: list[ToolCall]) -> Iterator[Message]:
    """A call is begun first, and its arguments follow."""
    for index, call in enumerate(calls):
        begun = CalledFunction("", call.function.name)
        yield Message(tool_calls=[ToolCall(begun, call.id, "function", index)])
        yield Message(tool_calls=[ToolCall(CalledFunction(call.function.arguments), index=index)])


def _calls(answer: Answer, named: Named) -> list[ToolCall]:
    return [
        ToolCall(
            CalledFunction(msgspec.json.encode(call.arguments).decode(), call.name),
            f"call_{named.call_id(index)}",
            "function",
        )
        for index, call in enumerate(answer.said.calls)
    ]


def _usage(answer: Answer) -> Usage:
    prompt, sampled = answer.prompt_tokens, answer.sampled_tokens
    return Usage(prompt, sampled, prompt + sampled, PromptDetails(answer.cached_tokens))


def _id(named: Named) -> str:
    return f"chatcmpl-{named.id}"
