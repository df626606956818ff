"""The model behind an agent: the engines, through token ids (:class:`TokenPolicy`), or a chat endpoint, through
messages (:mod:`actors.rollout.chat_policy`).

The agent's loop requests a reply, commits it to the history once it is parsed, and appends the observation.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from actors.agents.settings import HistoryMode
from actors.engines.messages import FinishReason, GenerateFunction, GenerateReply
from actors.engines.sampling import EpisodeSampling
from actors.rollout.settings import EpisodeSettings
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.prompt_context import PromptContext, RenderedContext, RenderingLimits, WholeContext
from actors.tokens.segment_tree import ObservationSource
from actors.tokens.truncation import truncate_text
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest

EVALUATION_TEMPERATURE = 1.0
"""Temperature of pass@1, independent of the training temperature."""


class ContextFullError(Exception):
    """The prompt leaves no room for a reply, according to the model's endpoint."""


class PolicyCompletion(NamedTuple):
    """One reply of a policy."""

    text: str
    """The sampled text, without the end-of-turn token."""
    tokens: int
    finish: FinishReason
    ms: float
    """Milliseconds from the request to the whole reply."""
    prompt_tokens: int
    versions: tuple[int, int] = (0, 0)
    """The oldest and the newest weight version that sampled it."""


class Policy(Protocol):
    """The policy of one episode."""

    @property
    def remaining_tokens(self) -> int:
        """Number of tokens that the next reply may have, possibly an estimate; below 1 no reply is possible."""
        ...

    @property
    def reply_prefix(self) -> str:
        """The text with which the prompt already begins each reply."""
        ...

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        """Return the reply to the history so far.  Raises ContextFullError, and InfraError if none came."""
        ...

    def commit_reply(self, *, malformed: bool) -> None:
        """Make the last reply part of the history."""
        ...

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        """See :meth:`actors.tokens.prompt_context.PromptContext.append_observation`."""
        ...

    def truncate_text(self, text: str, tokens: int) -> str:
        """Return ``text``, or its beginning and end if it has more than ``tokens`` tokens."""
        ...


def make_sampling(
    settings: EpisodeSettings,
    request: RolloutRequest,
    *,
    reply_timeout_s: float,
    restart_timeout_s: float,
    evaluation_temperature: float = EVALUATION_TEMPERATURE,
) -> EpisodeSampling:
    """Return the sampling parameters of ``request``: training and evaluations have separate temperatures."""
    return EpisodeSampling(
        temperature=settings.temperature if request.purpose == TRAIN_PURPOSE else evaluation_temperature,
        seed=request.seed,
        greedy=request.greedy,
        session=request.attempt_id,
        reply_timeout_s=reply_timeout_s,
        restart_timeout_s=restart_timeout_s,
    )


def open_prompt_context(
    settings: EpisodeSettings, chat: ChatFormat, opening: list[ChatMessage], used_tokens: int = 0
) -> PromptContext:
    """Return the prompt context of an episode, or of a step of it, that begins with ``opening``.

    ``used_tokens``: number of tokens of the segments of earlier steps."""
    if settings.history is HistoryMode.WHOLE:
        return WholeContext(chat, opening, context_tokens=settings.context_tokens - used_tokens)
    trimmed = settings.context_tokens - settings.max_new_tokens
    limits = RenderingLimits(
        context_tokens=settings.context_tokens,
        total_tokens=settings.total_tokens - used_tokens,
        prompt_tokens=trimmed if settings.history is HistoryMode.DYNAMIC else settings.context_tokens,
        head_share=settings.history_head,
    )
    return RenderedContext(chat, opening, limits)


class TokenPolicy:
    """A policy whose prompts are token ids; each continues from the replies exactly as they were sampled."""

    def __init__(
        self, chat: ChatFormat, context: PromptContext, generate: GenerateFunction, sampling: EpisodeSampling
    ) -> None:
        self.context = context
        self.reply_prefix = chat.reply_prefix
        self.engine = ""
        """Name of the engine that sampled the last reply."""
        self._chat, self._generate, self._sampling = chat, generate, sampling
        self._reply: GenerateReply | None = None

    @property
    def remaining_tokens(self) -> int:
        return self.context.remaining_tokens

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        sampling, prompt = self._sampling, self.context.prompt
        reply = await self._generate(sampling.make_request(prompt, max_new_tokens, self._chat.stop_ids, turn))
        self._reply, self.engine = reply, reply.engine
        text, versions = self._chat.decode_reply(reply.token_ids), (min(reply.versions), max(reply.versions))
        return PolicyCompletion(text, len(reply.token_ids), reply.finish, reply.ms, len(prompt), versions)

    def commit_reply(self, *, malformed: bool) -> None:
        if self._reply is not None:
            self.context.append_reply(self._reply, malformed=malformed)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        return self.context.append_observation(messages, source)

    def truncate_text(self, text: str, tokens: int) -> str:
        return truncate_text(self._chat.control_tokens, text, tokens)
