"""One session of a harness: one rollout, its limits, and what the engine gave.

Calls may overlap.  Each sets aside the tokens that it may add before it asks the engine, so that all of them together
stay within what the trajectory may hold; what follows an engine's answer happens without an await in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from actors.engines.messages import (
    GenerateReply,
    OnPartialReply,
    RequestRefused,
    StreamingGenerateFunction,
)
from actors.engines.sampling import EpisodeSampling
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError
from actors.gateway.completion import (
    CompletionEndReason,
    GatewayCompletion,
    cut_at_stop,
    parse_completion,
)
from actors.gateway.conversation import ConversationHistory, RenderedPrompt
from actors.gateway.partial_completion import PartialCompletion
from actors.rewards.episode_result import ModelTurn
from actors.tokens.chat_format import ChatFormat
from actors.tokens.reasoning import opens_reasoning
from protocol.errors import InfraError, UserError
from protocol.trajectory import EpisodeStatus, Segment

_READS_PER_REPLY = 16
"""Prompts of a session that are rendered, for each reply that it may have: what is refused, or only counted, takes time
of every session of this process too."""
_MOST_BYTES, _BYTES_PER_TOKEN = 64 << 10, 64
"""More than a request without text, and a token, have; what is longer is not even rendered."""
_ENDED = "this session has ended: its episode is over"
_TAIL = 16
"""Last tokens of a prompt, which show whether it ends within thoughts."""


class SessionLimits(Protocol):
    """Limits of a session; the run's :class:`actors.rollout.settings.EpisodeSettings` has them."""

    @property
    def max_turns(self) -> int:
        """Most replies."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of a reply, whatever the harness requests."""
        ...

    @property
    def context_tokens(self) -> int:
        """Most tokens of a prompt with its reply."""
        ...

    @property
    def total_tokens(self) -> int:
        """Most tokens of all segments together; shared prefixes count once."""
        ...


OnReply = Callable[[int, str, GenerateReply], None]
"""Told of each reply that is kept: its number from 0, its text, and the engine's own.  Must not raise."""

OnPartialCompletion = Callable[[PartialCompletion], None]
"""Told of a call's reply as it comes; as for :data:`actors.engines.messages.Watch`."""


class GatewaySession:
    """Made by :meth:`actors.gateway.server.Gateway.session`."""

    def __init__(
        self,
        limits: SessionLimits,
        sampling: EpisodeSampling,
        generate: StreamingGenerateFunction,
        chat_for: Callable[[Sequence[ChatTool]], ChatFormat],
        *,
        on_reply: OnReply,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = sampling.session
        self._limits, self._sampling, self._generate, self._chat_for = limits, sampling, generate, chat_for
        self._on_reply, self._clock = on_reply, clock
        self._history = ConversationHistory()
        self._ended = False
        self._set_aside = self._under_way = self._asked = self._read = 0
        self._waited_s = self._waits_since = 0.0
        self.replies = self.sampled_tokens = self.prompt_tokens = 0
        self.generate_ms = 0.0
        """Of all calls, one beside the other."""
        self.engine = ""
        """That answered last."""
        self.last_content = ""
        """Of the reply that was kept last, without thoughts and calls."""
        self.limit: EpisodeStatus | None = None
        """Which of the session's limits refused a call; None once one was answered again."""
        self.last_error: InfraError | None = None
        """Why the last call that went to the engine failed; None once one was answered again."""

    def segments(self) -> tuple[Segment, ...]:
        """What was asked and sampled until now; empty before the first reply."""
        return self._history.segments()

    def turns(self) -> Sequence[ModelTurn]:
        """What was said in them, turn by turn."""
        return self._history.turns

    @property
    def turn_order(self) -> Sequence[int]:
        """The turns as they stand in the segments, by their numbers."""
        return self._history.turn_order

    def close(self) -> None:
        """No call is taken any more; those under way are answered and not kept."""
        self._ended = True

    @property
    def waited_s(self) -> float:
        """How long some call has been under way, until now."""
        return self._waited_s + (self._clock() - self._waits_since if self._under_way else 0.0)

    @property
    def has_requests(self) -> bool:
        """Whether the engine has been, in its name."""
        return self._asked > 0

    def count_prompt_tokens(self, asked: ChatRequest) -> int:
        """Tokens of the prompt.  Raises :class:`Refused`."""
        return len(self._prompt(asked)[1].ids)

    async def complete(self, asked: ChatRequest, on_begun: OnPartialCompletion | None = None) -> GatewayCompletion:
        """Raises :class:`Refused`, or :class:`InfraError` when the engine failed: then the call may be made again."""
        chat, prompt = self._prompt(asked)
        begun = PartialCompletion(
            prompt_tokens=len(prompt.ids),
            text_of=chat.decode_reply,
            stops=asked.stop,
            starts_in_thinking=opens_reasoning(chat.decode_reply(prompt.ids[-_TAIL:])),
            may_call=asked.may_call and bool(asked.tools),
        )
        watch: OnPartialReply | None = (
            None if on_begun is None else lambda came: on_begun(replace(begun, token_ids=came.token_ids))
        )
        with self._room(asked, prompt) as most:
            reply = await self._ask(prompt, most, chat.turn_end_id, watch)
        if self._ended:
            raise GatewayRequestError(_ENDED, status=403)
        reply, text, stop = cut_at_stop(reply, asked.stop, chat.decode_reply)
        said = parse_completion(text, opened=begun.starts_in_thinking, may_call=begun.may_call)
        self._history.add_reply(prompt, reply, said.message, malformed=said.malformed)
        self.last_content = said.content
        self._on_reply(self.replies, text, reply)
        self.replies, self.engine = self.replies + 1, reply.engine
        self.sampled_tokens += len(reply.token_ids)
        self.prompt_tokens += len(prompt.ids)
        self.generate_ms += reply.ms
        ending = CompletionEndReason.END_OF_TURN
        if stop is not None:
            ending = CompletionEndReason.STOP_TEXT
        elif reply.finish == "length":
            ending = CompletionEndReason.LENGTH
        elif said.tool_calls:
            ending = CompletionEndReason.TOOL_CALLS
        return GatewayCompletion(
            parsed=said,
            end_reason=ending,
            stop_text=stop,
            prompt_tokens=len(prompt.ids),
            sampled_tokens=len(reply.token_ids),
            cached_tokens=min(reply.cached_tokens, len(prompt.ids)),
        )

    async def _ask(
        self, prompt: RenderedPrompt, most: int, turn_end: int, watch: OnPartialReply | None
    ) -> GenerateReply:
        self._asked += 1
        request = self._sampling.make_request(prompt.ids, most, turn_end, self._asked)
        try:
            reply = await self._generate(request, watch)
        except RequestRefused as error:
            raise GatewayRequestError(str(error)) from error
        except InfraError as error:
            self.last_error = error
            raise
        self.last_error = self.limit = None
        return reply

    def _prompt(self, asked: ChatRequest) -> tuple[ChatFormat, RenderedPrompt]:
        limits = self._limits
        if self._ended:
            raise GatewayRequestError(_ENDED, status=403)
        if asked.temperature not in (None, self._sampling.temperature):
            raise GatewayRequestError(
                f"temperature {asked.temperature:g} is not the run's, {self._sampling.temperature:g}, at which its "
                "log-probabilities are: leave temperature out",
                parameter="temperature",
            )
        self._read += 1
        if self._read > _READS_PER_REPLY * (limits.max_turns + 1):
            raise GatewayRequestError(
                f"the session has asked {self._read - 1} times", status=429, code="session_limit_reached"
            )
        if asked.body_bytes > _MOST_BYTES + _BYTES_PER_TOKEN * limits.context_tokens:
            self.limit = EpisodeStatus.CONTEXT_LIMIT
            raise GatewayRequestError(
                f"the request has {asked.body_bytes} bytes, which cannot be {limits.context_tokens} tokens, the most "
                "that a prompt and its reply may have",
                parameter="messages",
                code="context_length_exceeded",
            )
        if asked.messages[-1]["role"] == "assistant":
            raise GatewayRequestError(
                "the last message is the assistant's, and a reply cannot be begun for the model: end with another's",
                parameter="messages",
            )
        try:
            chat = self._chat_for(asked.tools)
            return chat, self._history.render_prompt(chat, asked.tools, asked.messages)
        except UserError as error:
            raise GatewayRequestError(str(error)) from error

    @contextmanager
    def _room(self, asked: ChatRequest, prompt: RenderedPrompt) -> Generator[int]:
        """Set aside what the call may add, for as long as it is under way; gives the tokens that may be sampled."""
        limits = self._limits
        if self.replies + self._under_way >= limits.max_turns:
            self.limit = EpisodeStatus.TURN_LIMIT
            raise GatewayRequestError(
                f"the session has had its {limits.max_turns} replies", code="session_limit_reached"
            )
        new = self._history.count_new_tokens(prompt)
        left = limits.total_tokens - self._history.tokens - self._set_aside - new
        most = min(asked.max_tokens or left, limits.max_new_tokens, limits.context_tokens - len(prompt.ids), left)
        if most < 1:
            self.limit = EpisodeStatus.CONTEXT_LIMIT
            raise GatewayRequestError(
                f"the prompt has {len(prompt.ids)} tokens, {new} of them new: no place is left for a reply within "
                f"{limits.context_tokens} tokens of context, and {limits.total_tokens} of the session",
                parameter="messages",
                code="context_length_exceeded",
            )
        if not self._under_way:
            self._waits_since = self._clock()
        self._set_aside += new + most
        self._under_way += 1
        try:
            yield most
        finally:
            self._waited_s = self.waited_s
            self._waits_since = self._clock()
            self._set_aside -= new + most
            self._under_way -= 1
