"""A model somewhere, by OpenAI's chat API: messages go in, text comes out, and tokens are what the endpoint counts.

A tool call that the endpoint has parsed is told to the agent as the model's template would have written it, so that
agents read one form; what an agent tells of a call goes back under its id.  How much of the context is left is known
from the endpoint's own count and, of what came since, from its length.

A request is sent again only where nothing came of it: no connection, or an answer that says to come again (429, 500,
502, 503, 504); until its deadline.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NotRequired, Self, TypedDict

import aiohttp
import msgspec

from actors.engines.messages import EngineUnavailable, FinishReason
from actors.rollout.policy import ContextFullError, PolicyCompletion
from actors.tokens.chat_format import ChatMessage
from actors.tokens.segment_tree import ObservationSource
from protocol.errors import InfraError, UserError
from protocol.truncation import truncate_middle

_RETRIED_STATUSES = {429, 500, 502, 503, 504}
_BACK_OFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_MOST_BYTES = 16 << 20
_CHARS_PER_TOKEN = 3
"""Fewer than most text has, so that a context is rather said to be full than found to be."""
_PER_MESSAGE = 8
"""Tokens that a template puts around a message, about."""
_SAID_CHARS = 300
_CUT = "left out"


class ChatRefusedError(InfraError):
    """The endpoint answered, and will not do what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpointSettings:
    url: str
    """Before ``/chat/completions``."""
    model: str
    key: str = ""
    deadline_s: float
    """Of one reply, with all that it takes to get one."""
    thinking: bool | None = None
    """What the endpoint's chat template is told of thinking, as SGLang and vLLM take it; None for nothing."""


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _ReplyMessage(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _ReplyMessage
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _ReplyBody(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_DECODER = msgspec.json.Decoder(_ReplyBody)


class ChatApiFunction(TypedDict):
    name: str
    arguments: str


class ChatApiCall(TypedDict):
    id: str
    type: str
    function: ChatApiFunction


class ChatApiMessage(TypedDict):
    """A message, as the API has it."""

    role: str
    content: str
    tool_calls: NotRequired[list[ChatApiCall]]
    tool_call_id: NotRequired[str]


class ChatEndpointReply(msgspec.Struct, frozen=True):
    """One reply of an endpoint."""

    message: ChatApiMessage
    text: str
    """What the agent reads."""
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int


class ChatEndpoint:
    """Connections to one endpoint, for any number of episodes.  An async context manager."""

    def __init__(self, settings: ChatEndpointSettings) -> None:
        self.settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        key = self.settings.key
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def list_models(self) -> list[str]:
        """What it serves.  Raises UserError where nobody answers as the API does, or the key is not taken."""
        url, mend = self.settings.url, "give --model http://HOST:PORT/v1 of an OpenAI-compatible server"
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                status, body = await self._exchange("GET", "models", None)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UserError(f"nobody answers at {url} ({error or 'too late'}): start the server, or {mend}") from error
        if status in {401, 403}:
            raise UserError(f"{url} does not take the key ({status}): put the right one into a file, --key-file FILE")
        try:
            return [each.id for each in msgspec.json.decode(body, type=_Models).data] if status == 200 else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []

    async def complete(self, request: dict[str, object]) -> ChatEndpointReply:
        """The reply to ``request``.  Raises NoRoom, EngineUnavailable where none came in time, ChatRefused."""
        limit, last = self.settings.deadline_s, "no answer"
        try:
            async with asyncio.timeout(limit):
                for attempt in range(1 << 20):
                    try:
                        status, body = await self._exchange("POST", "chat/completions", request)
                    except aiohttp.ClientConnectorError as error:
                        last = str(error)
                    else:
                        if status not in _RETRIED_STATUSES:
                            return _read(status, body)
                        last = f"{status}: {_line(body)}"
                    await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
        except TimeoutError as error:
            raise EngineUnavailable(f"{self.settings.url} gave no reply within {limit:g} s: {last}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable(f"{self.settings.url} broke off: {error}") from error
        raise AssertionError

    async def _exchange(self, method: str, path: str, body: dict[str, object] | None) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("the endpoint is not open")
        async with self._session.request(method, f"{self.settings.url}/{path}", json=body) as response:
            read = bytearray()
            async for piece in response.content.iter_any():
                read += piece
                if len(read) > _MOST_BYTES:
                    raise ChatRefusedError(f"{self.settings.url} answers with more than {_MOST_BYTES >> 20} MiB")
            return response.status, bytes(read)


def _line(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())[:_SAID_CHARS]


def _read(status: int, body: bytes) -> ChatEndpointReply:
    if status != 200:
        said = _line(body)
        if status in {400, 413, 422} and any(word in said.lower() for word in ("context", "too long", "too many tok")):
            raise ContextFullError
        raise ChatRefusedError(f"the endpoint refuses ({status}): {said}")
    try:
        answer = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ChatRefusedError(f"the endpoint's answer is no chat completion ({error}): {_line(body)}") from error
    if not answer.choices:
        raise ChatRefusedError("the endpoint's answer has no choice")
    choice, usage = answer.choices[0], answer.usage or _Usage()
    content, calls = choice.message.content or "", choice.message.tool_calls or []
    message = ChatApiMessage(role="assistant", content=content)
    if calls:
        message["tool_calls"] = [
            ChatApiCall(
                id=call.id or f"call_{number}",
                type="function",
                function=ChatApiFunction(name=call.function.name, arguments=call.function.arguments),
            )
            for number, call in enumerate(calls)
        ]
    text = "\n".join(filter(None, (content, *map(_as_written, calls))))
    finish: FinishReason = "length" if choice.finish_reason == "length" else "stop"
    return ChatEndpointReply(message, text, finish, usage.prompt_tokens, usage.completion_tokens)


def _as_written(call: _Call) -> str:
    """A call in Hermes' form; arguments that are no JSON stay what they are, for the agent to say so."""
    name = json.dumps(call.function.name)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.function.arguments or "{}"}}}\n</tool_call>'


class ChatPolicy:
    """One episode's messages with an endpoint: see :class:`actors.rollout.policy.Policy`."""

    reply_prefix = ""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        opening: Sequence[ChatMessage],
        *,
        tools: Sequence[object],
        context_tokens: int,
        temperature: float,
        seed: int,
    ) -> None:
        """``temperature`` 0 takes the likeliest token."""
        self._endpoint, self._tools, self._context_tokens = endpoint, [*tools], context_tokens
        self._temperature, self._seed = temperature, seed
        self._messages = [ChatApiMessage(role=each["role"], content=each["content"]) for each in opening]
        self._tokens = _estimated(self._messages)
        self._answer: ChatEndpointReply | None = None
        self._unanswered_calls: list[str] = []
        """Ids of calls that have not been answered."""

    @property
    def remaining_tokens(self) -> int:
        return self._context_tokens - self._tokens

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        request: dict[str, object] = {
            "model": self._endpoint.settings.model,
            "messages": self._messages,
            "max_tokens": max_new_tokens,
            "temperature": self._temperature,
            "seed": (self._seed + turn) & 0x7FFFFFFF,
        }
        if self._tools:
            request["tools"] = self._tools
        if (thinking := self._endpoint.settings.thinking) is not None:
            request["chat_template_kwargs"] = {"enable_thinking": thinking}
        begun = time.monotonic()
        answer = self._answer = await self._endpoint.complete(request)
        ms = (time.monotonic() - begun) * 1000
        return PolicyCompletion(answer.text, answer.completion_tokens, answer.finish, ms, answer.prompt_tokens)

    def commit_reply(self, *, malformed: bool) -> None:
        del malformed
        if (answer := self._answer) is None:
            return
        self._messages.append(answer.message)
        self._unanswered_calls = [call["id"] for call in answer.message.get("tool_calls", [])]
        counted = answer.prompt_tokens + answer.completion_tokens
        self._tokens = counted or _estimated(self._messages)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        del source
        told = [self._to_api_message(message) for message in messages]
        self._messages += told
        self._tokens += _estimated(told)
        return self.remaining_tokens > 0

    def _to_api_message(self, message: ChatMessage) -> ChatApiMessage:
        """What a tool answered, under the id of the next call; where the endpoint parsed none, as a user says it."""
        if message["role"] != "tool":
            return ChatApiMessage(role=message["role"], content=message["content"])
        if self._unanswered_calls:
            return ChatApiMessage(role="tool", content=message["content"], tool_call_id=self._unanswered_calls.pop(0))
        return ChatApiMessage(role="user", content=f"<tool_response>\n{message['content']}\n</tool_response>")

    def truncate_text(self, text: str, tokens: int) -> str:
        return truncate_by_length(text, tokens)


def truncate_by_length(text: str, tokens: int) -> str:
    """``text``, or its head and tail where it has about more than so many tokens."""
    return truncate_middle(text, tokens * _CHARS_PER_TOKEN, _CUT)


def _estimated(messages: Sequence[ChatApiMessage]) -> int:
    return sum(len(message["content"]) // _CHARS_PER_TOKEN + _PER_MESSAGE for message in messages)
