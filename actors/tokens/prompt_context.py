"""The prompt of each turn, and the segments of an episode.

A whole history continues from the sampled tokens unchanged and is one segment.  A rendered history is rendered by the
chat template, which may drop earlier thoughts, and tokenized again in each turn; its middle may be dropped too.  Each
turn is then a prompt and a reply of its own, and prompts share segments as far as they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.engines.messages import GenerateReply
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.segment_tree import ObservationSource, SegmentTree
from actors.tokens.token_buffer import TokenBuffer
from actors.tokens.truncation import OMITTED_MIDDLE, drop_middle
from protocol.trajectory import Segment, TurnKind


class PromptContext(Protocol):
    """The history of one episode as prompts and segments."""

    @property
    def prompt(self) -> list[int]:
        """The ids of the next prompt."""
        ...

    @property
    def remaining_tokens(self) -> int:
        """Number of tokens that the next reply may have; below 1 no reply is possible."""
        ...

    def append_reply(self, reply: GenerateReply, *, malformed: bool) -> None:
        """Append the reply to the prompt."""
        ...

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        """Append the messages that the policy reads next.  Return False if no reply would fit after them; then no
        segment contains them."""
        ...

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments so far."""
        ...

    @property
    def turn_order(self) -> Sequence[int]:
        """Number of each model turn in the episode, in the order of the segments."""
        ...


class WholeContext:
    """The whole history with the sampled tokens unchanged."""

    def __init__(self, chat: ChatFormat, opening: list[ChatMessage], *, context_tokens: int) -> None:
        self._chat, self._context_tokens, self._replies = chat, context_tokens, 0
        self._buffer = TokenBuffer()
        self._buffer.append_given(TurnKind.PROMPT, chat.encode_first_prompt(opening))

    @property
    def prompt(self) -> list[int]:
        return list(self._buffer.token_ids)

    @property
    def remaining_tokens(self) -> int:
        return self._context_tokens - len(self._buffer.token_ids)

    def append_reply(self, reply: GenerateReply, *, malformed: bool) -> None:
        self._buffer.append_sampled(reply, malformed=malformed)
        self._replies += 1

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        ids = self._chat.encode_next(self._buffer.token_ids[-1], messages)
        if len(ids) >= self.remaining_tokens:
            return False
        self._buffer.append_given(TurnKind.OBSERVATION, ids, tool=source.tool, exit_code=source.exit_code, ms=source.ms)
        return True

    def segments(self) -> tuple[Segment, ...]:
        return (self._buffer.to_segment(),)

    @property
    def turn_order(self) -> Sequence[int]:
        return range(self._replies)


@dataclass(slots=True, kw_only=True)
class RenderingLimits:
    """Limits of a history that is rendered again in each turn."""

    context_tokens: int
    """Maximum number of tokens of a prompt and its reply."""
    total_tokens: int
    """Maximum number of tokens of all segments together."""
    prompt_tokens: int
    """Number of tokens above which a prompt loses its middle; ``context_tokens`` if prompts are never cut."""
    head_share: float
    """Share of a cut prompt that comes from its beginning."""


@dataclass(slots=True)
class RenderedContext:
    """The messages so far, as the template renders them."""

    _chat: ChatFormat
    _messages: list[ChatMessage]
    _rendering: RenderingLimits
    _tree: SegmentTree = field(default_factory=SegmentTree)
    _source: ObservationSource = field(default_factory=ObservationSource)
    _prompt: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._render()

    def _render(self) -> None:
        mark = self._chat.tokenizer.encode(OMITTED_MIDDLE, add_special_tokens=False)
        whole, rendering = self._chat.encode_first_prompt(self._messages), self._rendering
        self._prompt = drop_middle(whole, rendering.prompt_tokens, head_share=rendering.head_share, mark=mark)

    @property
    def prompt(self) -> list[int]:
        return self._prompt

    @property
    def remaining_tokens(self) -> int:
        rendering, prompt = self._rendering, self._prompt
        left = rendering.total_tokens - self._tree.token_count - self._tree.count_new_tokens(prompt)
        return min(rendering.context_tokens - len(prompt), left)

    def append_reply(self, reply: GenerateReply, *, malformed: bool) -> None:
        self._tree.add_reply(self._prompt, reply, self._source, malformed=malformed)
        text = self._chat.reply_prefix + self._chat.decode_reply(reply.token_ids)
        self._messages = [*self._messages, {"role": "assistant", "content": text}]

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        self._messages, self._source = [*self._messages, *messages], source
        self._render()
        return self.remaining_tokens > 0

    def segments(self) -> tuple[Segment, ...]:
        if segments := self._tree.segments():
            return segments
        buffer = TokenBuffer()
        buffer.append_given(TurnKind.PROMPT, self._prompt)
        return (buffer.to_segment(),)

    @property
    def turn_order(self) -> Sequence[int]:
        return self._tree.reply_order
