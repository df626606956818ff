"""One session of a harness, which is one rollout: its limits and its replies.

Calls may overlap.  Each reserves the tokens that it may add before it calls the engine, so that all of them together
stay within the trajectory's limit; a reply is processed without an await in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Protocol

from actors.agents.call_format import CallFormat
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
    CompletionReading,
    GatewayCompletion,
    cut_after_first_call,
    cut_at_stop,
)
from actors.gateway.conversation import ConversationHistory, RenderedPrompt
from actors.gateway.exchanges import WorkConversation
from actors.gateway.partial_completion import PartialCompletion
from actors.rewards.episode_result import ModelTurn
from actors.tokens.chat_format import ChatFormat
from actors.tokens.reasoning import opens_reasoning
from protocol.errors import InfraError, UserError
from protocol.processes.cancellation import call_in_thread
from protocol.trajectory import EpisodeStatus, ReplyRole, Segment

_READS_PER_REPLY = 16
"""Maximum number of prompts rendered per allowed reply, because refused prompts also take time from all sessions of
this process."""
_MOST_BYTES, _BYTES_PER_TOKEN = 64 << 10, 64
"""Upper bounds for a request without text and for a token; a longer request is not read."""
_ENDED = "this session has ended: its episode is over"
_LONG_BYTES = 32 << 10
"""Bytes of messages and tools from which on a prompt is rendered in a thread; the tokens of fewer take some
milliseconds."""
_TAIL = 16
"""Number of last tokens of a prompt that are decoded to see whether it ends inside thoughts."""


class GatewaySessionLimits(Protocol):
    """Limits of a session; the run's :class:`actors.rollout.settings.EpisodeSettings` has them."""

    @property
    def max_turns(self) -> int:
        """Maximum number of replies."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Maximum number of tokens of a reply, even if the harness requests more."""
        ...

    @property
    def context_tokens(self) -> int:
        """Maximum number of tokens of a prompt with its reply."""
        ...

    @property
    def total_tokens(self) -> int:
        """Maximum number of tokens of all segments together; shared prefixes count once."""
        ...


OnReply = Callable[[int, str, GenerateReply], None]
"""Called with each kept reply: its number from 0, its text, and the engine's reply.  Must not raise."""

OnPartialCompletion = Callable[[PartialCompletion], None]
"""Called with a call's partial reply; the rules of :data:`actors.engines.messages.OnPartialReply` apply."""


class GatewaySession:
    """A session, opened by :meth:`actors.gateway.server.Gateway.open_session`."""

    def __init__(
        self,
        limits: GatewaySessionLimits,
        sampling: EpisodeSampling,
        generate: StreamingGenerateFunction,
        chat_for: Callable[[Sequence[ChatTool]], ChatFormat],
        *,
        calls: CallFormat,
        untrained: frozenset[ReplyRole],
        on_reply: OnReply,
        clock: Callable[[], float],
    ) -> None:
        self.name = sampling.session
        self._limits, self._sampling, self._generate, self._chat_for = limits, sampling, generate, chat_for
        self._calls, self._on_reply, self._clock = calls, on_reply, clock
        self._history = ConversationHistory(untrained)
        self._using_history = asyncio.Lock()
        """Held while a thread reads the history, and while a reply is added to it."""
        self._ended = False
        self._reserved = self._in_flight = self._requests = self._rendered = 0
        self._waited_s = self._waits_since = 0.0
        self.replies = self.sampled_tokens = self.prompt_tokens = 0
        self.generate_ms = 0.0
        """Sum over all calls."""
        self.engine = ""
        """Name of the engine that sampled the last reply."""
        self.limit: EpisodeStatus | None = None
        """Limit of the session that refused the last call; None after an answered call."""
        self.last_error: InfraError | None = None
        """Error of the last call to the engine; None after an answered call."""

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments so far; empty before the first reply.  Replies that are not the agent's work are marked,
        and have no loss if their role is untrained (:mod:`.reply_roles`)."""
        return self._history.segments()

    def all_turns(self) -> Sequence[ModelTurn]:
        """Return the turns of all replies so far; each keeps its place."""
        return self._history.all_turns

    def turns(self) -> Sequence[ModelTurn]:
        """Return the turns of the agent's work, as far as the session shows by now what it is."""
        return self._history.turns

    @property
    def turn_order(self) -> Sequence[int]:
        """Numbers of these turns in the order of the segments."""
        return self._history.turn_order

    @property
    def last_content(self) -> str:
        """The last reply of the agent's work, without thoughts and calls."""
        return self._history.last_content

    @property
    def work(self) -> WorkConversation:
        """The messages of the agent's work."""
        return self._history.work

    def begin_step(self) -> None:
        """Accept calls of the task's next step, also after :meth:`close`."""
        self._history.step += 1
        self._ended = False

    def close(self) -> None:
        """Accept no more calls; those in flight are refused and not kept."""
        self._ended = True

    @property
    def waited_s(self) -> float:
        """Seconds during which at least one call was in flight."""
        return self._waited_s + (self._clock() - self._waits_since if self._in_flight else 0.0)

    @property
    def has_requests(self) -> bool:
        """True if the engine has been called for this session."""
        return self._requests > 0

    def check_body_size(self, size: int) -> None:
        """Raise :class:`GatewayRequestError` if a request of ``size`` bytes is too long for the context."""
        most = self._limits.context_tokens
        if size > _MOST_BYTES + _BYTES_PER_TOKEN * most:
            self.limit = EpisodeStatus.CONTEXT_LIMIT
            raise GatewayRequestError(
                f"the request has {size} bytes, more than {most} tokens can have, the limit of a prompt and its reply",
                parameter="messages",
                code="context_length_exceeded",
            )

    async def count_prompt_tokens(self, request: ChatRequest) -> int:
        """Return the number of prompt tokens.  Raises :class:`GatewayRequestError`."""
        return len((await self._prompt(request))[1].ids)

    async def complete(self, request: ChatRequest, on_partial: OnPartialCompletion | None = None) -> GatewayCompletion:
        """Sample a reply.  Raises :class:`GatewayRequestError`, or :class:`InfraError` if the engine failed, after
        which the call may be repeated."""
        chat, prompt = await self._prompt(request)
        reading = CompletionReading(
            text_of=chat.decode_reply,
            stops=request.stop,
            starts_in_thinking=opens_reasoning(chat.decode_reply(prompt.ids[-_TAIL:])),
            may_call=request.may_call and bool(request.tools),
            calls=self._calls,
            tools=[tool.schema for tool in request.tools],
            text_tools={tool.name for tool in request.tools if tool.takes_text},
        )
        partial = PartialCompletion(prompt_tokens=len(prompt.ids), reading=reading)
        watch: OnPartialReply | None = (
            None if on_partial is None else lambda reply: on_partial(replace(partial, token_ids=reply.token_ids))
        )
        async with AsyncExitStack() as held:
            with self._reserve_tokens(request, prompt) as most:
                reply = await self._sample(prompt, most, chat.stop_ids, watch)
                await held.enter_async_context(self._using_history)
            return self._keep(prompt, reply, reading, one_call=request.one_call)

    def _keep(
        self, prompt: RenderedPrompt, reply: GenerateReply, reading: CompletionReading, *, one_call: bool
    ) -> GatewayCompletion:
        """Read the engine's reply and add it to the session."""
        if self._ended:
            raise GatewayRequestError(_ENDED, status=403)
        reply, text, stop = cut_at_stop(reply, reading)
        parsed = reading.parse(text)
        if one_call and len(parsed.tool_calls) > 1:
            reply, parsed = cut_after_first_call(reply, reading)
            text = reading.text_of(reply.token_ids)
        self._history.add_reply(prompt, reply, parsed.message, malformed=parsed.malformed)
        self._on_reply(self.replies, text, reply)
        self.replies, self.engine = self.replies + 1, reply.engine
        self.sampled_tokens += len(reply.token_ids)
        self.prompt_tokens += len(prompt.ids)
        self.generate_ms += reply.ms
        end_reason = CompletionEndReason.END_OF_TURN
        if stop is not None:
            end_reason = CompletionEndReason.STOP_TEXT
        elif reply.finish == "length":
            end_reason = CompletionEndReason.LENGTH
        elif parsed.tool_calls:
            end_reason = CompletionEndReason.TOOL_CALLS
        return GatewayCompletion(
            parsed=parsed,
            end_reason=end_reason,
            stop_text=stop,
            prompt_tokens=len(prompt.ids),
            sampled_tokens=len(reply.token_ids),
            cached_tokens=min(reply.cached_tokens, len(prompt.ids)),
        )

    async def _sample(
        self, prompt: RenderedPrompt, most: int, stop_ids: tuple[int, ...], watch: OnPartialReply | None
    ) -> GenerateReply:
        self._requests += 1
        request = self._sampling.make_request(prompt.ids, most, stop_ids, self._requests)
        try:
            reply = await self._generate(request, watch)
        except RequestRefused as error:
            raise GatewayRequestError(str(error)) from error
        except InfraError as error:
            self.last_error = error
            raise
        self.last_error = self.limit = None
        return reply

    async def _prompt(self, request: ChatRequest) -> tuple[ChatFormat, RenderedPrompt]:
        limits = self._limits
        if self._ended:
            raise GatewayRequestError(_ENDED, status=403)
        if request.temperature not in (None, self._sampling.temperature):
            raise GatewayRequestError(
                f"temperature {request.temperature:g} differs from the run's, {self._sampling.temperature:g}, for "
                "which the log-probabilities are recorded: leave temperature out",
                parameter="temperature",
            )
        self._rendered += 1
        if self._rendered > _READS_PER_REPLY * (limits.max_turns + 1):
            raise GatewayRequestError(
                f"the session has made {self._rendered - 1} requests", status=429, code="session_limit_reached"
            )
        if request.messages[-1]["role"] == "assistant":
            raise GatewayRequestError(
                "the last message is the assistant's, but prefilling a reply is not supported: end with another role",
                parameter="messages",
            )
        try:
            async with self._using_history:
                chat, prompt = await self._render(request)
        except UserError as error:
            raise GatewayRequestError(str(error)) from error
        if self._ended:
            raise GatewayRequestError(_ENDED, status=403)
        return chat, prompt

    async def _render(self, request: ChatRequest) -> tuple[ChatFormat, RenderedPrompt]:
        """Render a prompt; a long one in a thread, because 100,000 tokens take a tenth of a second or more, in which
        other sessions would wait.  Whatever is in the messages and tools counts."""

        def render() -> tuple[ChatFormat, RenderedPrompt]:
            chat = self._chat_for(request.tools)
            return chat, self._history.render_prompt(chat, request.tools, request.messages)

        if request.prompt_bytes < _LONG_BYTES:
            return render()
        return await call_in_thread(render)

    @contextmanager
    def _reserve_tokens(self, request: ChatRequest, prompt: RenderedPrompt) -> Generator[int]:
        """Reserve the tokens that the call may add while it is in flight; yield the number that may be sampled."""
        limits = self._limits
        if self.replies + self._in_flight >= limits.max_turns:
            self.limit = EpisodeStatus.TURN_LIMIT
            raise GatewayRequestError(
                f"the session has had its {limits.max_turns} replies", code="session_limit_reached"
            )
        new = self._history.count_new_tokens(prompt)
        left = limits.total_tokens - self._history.tokens - self._reserved - new
        most = min(request.max_tokens or left, limits.max_new_tokens, limits.context_tokens - len(prompt.ids), left)
        if most < 1:
            self.limit = EpisodeStatus.CONTEXT_LIMIT
            raise GatewayRequestError(
                f"the prompt has {len(prompt.ids)} tokens, {new} of them new: no room is left for a reply within "
                f"{limits.context_tokens} tokens of context, and {limits.total_tokens} of the session",
                parameter="messages",
                code="context_length_exceeded",
            )
        if not self._in_flight:
            self._waits_since = self._clock()
        self._reserved += new + most
        self._in_flight += 1
        try:
            yield most
        finally:
            self._waited_s = self.waited_s
            self._waits_since = self._clock()
            self._reserved -= new + most
            self._in_flight -= 1
