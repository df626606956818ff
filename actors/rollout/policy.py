"""Who answers an agent: the engines, token by token (:class:`TokenPolicy`), or a chat's endpoint by messages
(:mod:`actors.rollout.chat_policy`).

An agent's loop asks for a reply, keeps it as part of the history once it was understood, and says what was observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from actors.engines.messages import FinishReason, GenerateFunction, GenerateReply, GenerateRequest
from actors.tokens.chat_format import ChatFormat, ChatMessage
from actors.tokens.prompt_context import PromptContext
from actors.tokens.segment_tree import ObservationSource
from actors.tokens.truncation import truncate_text


class ContextFullError(Exception):
    """The prompt leaves no place for a reply, as whoever was asked says."""


class PolicyCompletion(NamedTuple):
    text: str
    """What was sampled, without the turn's end."""
    tokens: int
    finish: FinishReason
    ms: float
    """From the request to the whole reply."""
    prompt_tokens: int
    """Of the prompt that it answers."""
    versions: tuple[int, int] = (0, 0)
    """Of the weights that sampled it, the oldest and the newest."""


class Policy(Protocol):
    """One episode's."""

    @property
    def remaining_tokens(self) -> int:
        """Tokens that the next reply may have, as far as is known; none where this is below 1."""
        ...

    @property
    def reply_prefix(self) -> str:
        """What the prompt has said already of each reply."""
        ...

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        """The reply to all that was said and observed.  Raises NoRoom, and InfraError where none came."""
        ...

    def commit_reply(self, *, malformed: bool) -> None:
        """The last reply is part of the history."""
        ...

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        """See :meth:`actors.tokens.prompt_context.Context.observed`."""
        ...

    def truncate_text(self, text: str, tokens: int) -> str:
        """``text``, or its head and tail where it has more than so many tokens."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeSampling:
    """What is the same of all an episode's requests."""

    temperature: float
    seed: int
    greedy: bool
    session: str
    deadline_s: float
    restart_s: float


class TokenPolicy:
    """Each prompt is ids, each reply goes on from them as it was sampled (:mod:`actors.tokens.prompt_context`)."""

    def __init__(
        self, chat: ChatFormat, context: PromptContext, generate: GenerateFunction, sampling: EpisodeSampling
    ) -> None:
        self.context, self.engine = context, ""
        self._chat, self._generate, self._sampling = chat, generate, sampling
        self._reply: GenerateReply | None = None

    @property
    def remaining_tokens(self) -> int:
        return self.context.remaining_tokens

    @property
    def reply_prefix(self) -> str:
        return self._chat.reply_prefix

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        sampling, prompt = self._sampling, self.context.prompt
        reply = await self._generate(
            GenerateRequest(
                input_ids=prompt,
                max_new_tokens=max_new_tokens,
                temperature=sampling.temperature,
                stop_token_ids=(self._chat.turn_end_id,),
                seed=(sampling.seed + turn) & 0x7FFFFFFF,
                greedy=sampling.greedy,
                session=sampling.session,
                deadline_s=sampling.deadline_s,
                restart_s=sampling.restart_s,
            )
        )
        self._reply, self.engine = reply, reply.engine
        text, versions = self._chat.decode_reply(reply.token_ids), (min(reply.versions), max(reply.versions))
        return PolicyCompletion(text, len(reply.token_ids), reply.finish, reply.ms, len(prompt), versions)

    def commit_reply(self, *, malformed: bool) -> None:
        if self._reply is not None:
            self.context.append_reply(self._reply, malformed=malformed)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        return self.context.append_observation(messages, source)

    def truncate_text(self, text: str, tokens: int) -> str:
        return truncate_text(self._chat.tokenizer, text, tokens)
