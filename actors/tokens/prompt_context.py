"""What the policy is asked with, turn by turn, and the segments that come of it.

The whole history goes on from what was sampled, token by token, and is one segment.  A history that is rendered anew
goes through the chat template in each turn, which may drop thoughts of earlier ones, and through the tokenizer; it may
lose its middle too.  Each turn is a prompt and a reply of its own then, and a segment as far as prompts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.engines.messages import GenerateReply
from actors.tokens.chat_format import ChatFormat, ChatMessage
from actors.tokens.segment_tree import ObservationSource, SegmentTree
from actors.tokens.token_buffer import TokenBuffer
from actors.tokens.truncation import OMITTED_MIDDLE, drop_middle
from protocol.trajectory import Segment, TurnKind


class PromptContext(Protocol):
    @property
    def prompt(self) -> list[int]:
        """Ids of the next one."""
        ...

    @property
    def remaining_tokens(self) -> int:
        """Tokens that its reply may have; none where this is below 1."""
        ...

    def append_reply(self, reply: GenerateReply, *, malformed: bool) -> None:
        """The prompt was answered."""
        ...

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        """What the policy is told next.  False, and then it is no part of a segment, where no reply would fit behind
        it."""
        ...

    def segments(self) -> tuple[Segment, ...]: ...

    @property
    def turn_order(self) -> Sequence[int]:
        """Of each of the model's turns, as they stand in the segments: its number among all of them."""
        ...


class WholeContext:
    """All that was said, as it was sampled."""

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
        ids = self._chat.encode_delta(messages, closed=self._buffer.token_ids[-1] == self._chat.turn_end_id)
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
    """How a history is rendered anew."""

    context_tokens: int
    """Of a prompt and its reply."""
    total_tokens: int
    """Of all segments together."""
    prompt_tokens: int
    """Of a prompt, which loses its middle where it has more; ``context_tokens`` for none that does."""
    head_share: float
    """Of what a prompt that lost its middle has left, the part before it."""


@dataclass(slots=True)
class RenderedContext:
    """The messages so far, as the template has them."""

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
        said = self._chat.reply_prefix + self._chat.decode_reply(reply.token_ids)
        self._messages = [*self._messages, {"role": "assistant", "content": said}]

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        self._messages, self._source = [*self._messages, *messages], source
        self._render()
        return self.remaining_tokens > 0

    def segments(self) -> tuple[Segment, ...]:
        if made := self._tree.segments():
            return made
        tape = TokenBuffer()
        tape.append_given(TurnKind.PROMPT, self._prompt)
        return (tape.to_segment(),)

    @property
    def turn_order(self) -> Sequence[int]:
        return self._tree.reply_order
