"""The model behind a judge: a server with OpenAI's chat API, or engines of the run's own.

Either answers a question with a text, or with the reason why there is none.  Neither raises for a failure of the model,
and neither asks twice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from actors.chat_api.client import CONNECTION_ERRORS, ChatApiClient, ChatApiError, ChatApiStatusError
from actors.engines.messages import EngineBusy, GenerateFunction, GenerateRequest, RequestRefused, RequestTimedOut
from actors.engines.routing.load_balancer import LoadBalancer
from actors.rewards.settings import JudgeSpec
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from protocol.errors import InfraError
from protocol.processes.cancellation import call_in_thread

MAX_REPLY_BYTES = 1 << 20
"""A longer reply of a server is an invalid vote."""
_PATIENCE_S = 2.0
"""Seconds that a question waits for an engine without a server."""


class VoteFailure(StrEnum):
    """Reason why a vote does not count."""

    INVALID = "invalid"
    """The reply says neither 1 nor −1."""
    SLOW = "slow"
    """The reply did not come in time."""
    DOWN = "down"
    """The server could not be reached, broke off, or refused."""


AskQuestion: TypeAlias = Callable[[], Awaitable[str | VoteFailure]]
"""Asks a question once more."""


class JudgeModel(Protocol):
    async def prepare(self, question: str) -> AskQuestion:
        """Return a function that asks ``question`` each time that it is called."""
        ...


class ApiJudgeModel:
    """A model behind OpenAI's chat API."""

    def __init__(self, spec: JudgeSpec, client: ChatApiClient) -> None:
        self._settings, self._client = spec.settings, client

    async def prepare(self, question: str) -> AskQuestion:
        settings = self._settings
        request: dict[str, object] = {
            "model": settings.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": settings.temperature,
            "max_tokens": settings.max_new_tokens,
        }
        return lambda: self._ask(request)

    async def _ask(self, request: dict[str, object]) -> str | VoteFailure:
        try:
            completion = await self._client.complete(request)
        except (ChatApiStatusError, *CONNECTION_ERRORS):
            return VoteFailure.DOWN
        except ChatApiError:
            return VoteFailure.INVALID
        return completion.choices[0].message.text


class EngineJudgeModel:
    """A model on engines of the run.  Questions are spread over the engines by load; one that fails is avoided for some
    seconds."""

    def __init__(self, spec: JudgeSpec, chat: ChatFormat, engines: Sequence[GenerateFunction]) -> None:
        self._spec, self._chat, self._engines = spec, chat, engines
        self._balancer, self._numbers = LoadBalancer(len(engines)), itertools.count()

    async def prepare(self, question: str) -> AskQuestion:
        """The reply may be as long as ``judge.max_new_tokens`` and the model's context allow.

        A thread tokenizes the question, because an episode has one for each turn."""
        settings = self._spec.settings
        message: ChatMessage = {"role": "user", "content": question}
        prompt = await call_in_thread(lambda: self._chat.encode_first_prompt([message]))
        request = GenerateRequest(
            input_ids=prompt,
            max_new_tokens=min(settings.max_new_tokens, max(1, self._spec.context_tokens - len(prompt))),
            temperature=settings.temperature or 1.0,
            stop_token_ids=self._chat.stop_ids,
            seed=None,
            greedy=not settings.temperature,
            session=f"question-{next(self._numbers)}",
            deadline_s=settings.vote_timeout_s,
            patience_s=_PATIENCE_S,
        )
        return lambda: self._ask(request)

    async def _ask(self, request: GenerateRequest) -> str | VoteFailure:
        balancer = self._balancer
        index = balancer.begin_request(request.session, request.token_budget, time.monotonic())
        try:
            reply = await self._engines[index](request)
        except RequestTimedOut:
            return VoteFailure.SLOW
        except RequestRefused:
            return VoteFailure.DOWN
        except InfraError as error:
            balancer.mark_failed(index, time.monotonic(), busy=isinstance(error, EngineBusy))
            return VoteFailure.DOWN
        finally:
            balancer.end_request(index, request.token_budget)
        return self._chat.decode_reply(reply.token_ids)
