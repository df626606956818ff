"""A policy behind OpenAI's chat API: messages go in, text comes out, and the endpoint counts the tokens.

A tool call that the endpoint has parsed is shown to the agent as the model's template would have written it, so agents
read one form; the outcome of a call is sent back under its id.  The remaining context is computed from the endpoint's
own token count, plus an estimate by length for messages added since.

A request is retried until its deadline, and only if it had no effect: no connection, or status 429, 500, 502, 503 or
504.
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

from actors.chat_api.client import (
    CONNECTION_ERRORS,
    ChatApiClient,
    ChatApiError,
    ChatApiStatusError,
    ChatCompletion,
    ChatToolCall,
    ChatUsage,
)
from actors.engines.messages import EngineUnavailable, FinishReason
from actors.rollout.policy import ContextFullError, PolicyCompletion
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.segment_tree import ObservationSource
from protocol.errors import InfraError, UserError
from protocol.truncation import truncate_middle

_RETRIED_STATUSES = {429, 500, 502, 503, 504}
_BACK_OFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_CHARS_PER_TOKEN = 3
"""Lower than in most text, so a context is declared full too early rather than too late."""
_TOKENS_PER_MESSAGE = 8
"""Approximate tokens that a template puts around a message."""
_CONTEXT_FULL_STATUSES = {400, 413, 422}
_CONTEXT_FULL_WORDS = ("context", "too long", "too many tok")


class ChatRefusedError(InfraError):
    """The endpoint answered and refused the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpointSettings:
    """Address, model and deadline of an endpoint."""

    url: str
    """Base URL, without ``/chat/completions``."""
    model: str
    key: str = ""
    deadline_s: float
    """Longest wait for one reply, retries included."""
    thinking: bool | None = None
    """The value of the chat template's ``enable_thinking``, as SGLang and vLLM accept it; None to leave it out."""


class ChatApiFunction(TypedDict):
    """A function call in the API's form."""

    name: str
    arguments: str


class ChatApiCall(TypedDict):
    """A tool call in the API's form."""

    id: str
    type: str
    function: ChatApiFunction


class ChatApiMessage(TypedDict):
    """A message in the API's form."""

    role: str
    content: str
    tool_calls: NotRequired[list[ChatApiCall]]
    tool_call_id: NotRequired[str]


class ChatEndpointReply(msgspec.Struct, frozen=True):
    """One reply of an endpoint."""

    message: ChatApiMessage
    text: str
    """The text that the agent parses."""
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int


class ChatEndpoint:
    """Connections to one endpoint, for any number of episodes.  An async context manager."""

    def __init__(self, settings: ChatEndpointSettings) -> None:
        self.settings = settings
        self._client = ChatApiClient(settings.url, settings.key)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def list_models(self) -> list[str]:
        """Return the names of the served models.  Raises UserError if no such API answers or the key is refused."""
        url, fix = self.settings.url, "give --model http://HOST:PORT/v1 of an OpenAI-compatible server"
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                return await self._client.list_models()
        except ChatApiStatusError as error:
            raise UserError(
                f"{url} does not accept the key ({error.status}): put the right one into a file, --key-file FILE"
            ) from error
        except (*CONNECTION_ERRORS, TimeoutError) as error:
            raise UserError(
                f"no server answers at {url} ({error or 'timed out'}): start the server, or {fix}"
            ) from error

    async def complete(self, request: dict[str, object]) -> ChatEndpointReply:
        """Return the reply to ``request``.

        Raises ContextFullError, ChatRefusedError, and EngineUnavailable if no reply came in time."""
        url, limit_s, last = self.settings.url, self.settings.deadline_s, "no reply"
        try:
            async with asyncio.timeout(limit_s):
                for attempt in range(1 << 20):
                    try:
                        return _to_reply(await self._client.complete(request))
                    except aiohttp.ClientConnectorError as error:
                        last = str(error)
                    except ChatApiStatusError as error:
                        if error.status not in _RETRIED_STATUSES:
                            raise _refusal(error) from error
                        last = str(error)
                    await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
        except TimeoutError as error:
            raise EngineUnavailable(f"{url} gave no reply within {limit_s:g} s: {last}") from error
        except CONNECTION_ERRORS as error:
            raise EngineUnavailable(f"{url} broke off: {error}") from error
        except ChatApiError as error:
            raise ChatRefusedError(f"{url}: {error}") from error
        raise AssertionError


def _refusal(error: ChatApiStatusError) -> Exception:
    if error.status in _CONTEXT_FULL_STATUSES and any(word in error.text.lower() for word in _CONTEXT_FULL_WORDS):
        return ContextFullError(str(error))
    return ChatRefusedError(f"the endpoint refuses ({error.status}): {error.text}")


def _to_reply(completion: ChatCompletion) -> ChatEndpointReply:
    choice, usage = completion.choices[0], completion.usage or ChatUsage()
    content, calls = choice.message.text, choice.message.calls
    message = ChatApiMessage(role="assistant", content=content)
    if calls:
        message["tool_calls"] = [
            ChatApiCall(
                id=call.id or f"call_{number}",
                type="function",
                function=ChatApiFunction(name=call.function.name, arguments=call.function.written_arguments),
            )
            for number, call in enumerate(calls)
        ]
    text = "\n".join(filter(None, (content, *map(_as_written, calls))))
    finish: FinishReason = "length" if choice.finish_reason == "length" else "stop"
    return ChatEndpointReply(message, text, finish, usage.prompt_tokens, usage.completion_tokens)


def _as_written(call: ChatToolCall) -> str:
    """Return a call in Hermes' form; arguments that are not JSON stay unchanged, for the agent to report."""
    name = json.dumps(call.function.name)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.function.written_arguments}}}\n</tool_call>'


class ChatPolicy:
    """One episode's conversation with an endpoint: an :class:`actors.rollout.policy.Policy`."""

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
        """Begin a conversation; ``temperature`` 0 always takes the likeliest token."""
        self._endpoint, self._tools, self._context_tokens = endpoint, [*tools], context_tokens
        self._temperature, self._seed = temperature, seed
        self._messages = [ChatApiMessage(role=each["role"], content=each["content"]) for each in opening]
        self._tokens = _estimate_tokens(self._messages)
        self._answer: ChatEndpointReply | None = None
        self._unanswered_calls: list[str] = []
        """Ids of the calls without a result yet."""

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
        try:
            answer = self._answer = await self._endpoint.complete(request)
        except ContextFullError as error:
            if self._answer is not None:
                raise
            raise ChatRefusedError(
                f"the endpoint refuses the first prompt ({error}): serve the model with room for agent.context_tokens "
                f"= {self._context_tokens}, or set agent.context_tokens and agent.max_new_tokens to what it has"
            ) from error
        ms = (time.monotonic() - begun) * 1000
        return PolicyCompletion(answer.text, answer.completion_tokens, answer.finish, ms, answer.prompt_tokens)

    def commit_reply(self, *, malformed: bool) -> None:
        del malformed
        if (answer := self._answer) is None:
            return
        self._messages.append(answer.message)
        self._unanswered_calls = [call["id"] for call in answer.message.get("tool_calls", [])]
        counted = answer.prompt_tokens + answer.completion_tokens
        self._tokens = counted or _estimate_tokens(self._messages)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        del source
        observed = [self._to_api_message(message) for message in messages]
        self._messages += observed
        self._tokens += _estimate_tokens(observed)
        return self.remaining_tokens > 0

    def _to_api_message(self, message: ChatMessage) -> ChatApiMessage:
        """Return a tool's result under the id of the next call; if the endpoint parsed none, as a user's message."""
        if message["role"] != "tool":
            return ChatApiMessage(role=message["role"], content=message["content"])
        if self._unanswered_calls:
            return ChatApiMessage(role="tool", content=message["content"], tool_call_id=self._unanswered_calls.pop(0))
        return ChatApiMessage(role="user", content=f"<tool_response>\n{message['content']}\n</tool_response>")

    def truncate_text(self, text: str, tokens: int) -> str:
        return truncate_by_length(text, tokens)


def truncate_by_length(text: str, tokens: int) -> str:
    """Return ``text``, or its beginning and end if it has more than about ``tokens`` tokens."""
    return truncate_middle(text, tokens * _CHARS_PER_TOKEN, "left out")


def _estimate_tokens(messages: Sequence[ChatApiMessage]) -> int:
    return sum(len(message["content"]) // _CHARS_PER_TOKEN + _TOKENS_PER_MESSAGE for message in messages)
