"""What the policy is asked with, turn by turn, and the segments that come of it.

The whole history goes on from what was sampled, token by token, and is one segment.  A history that is rendered anew
goes through the chat template in each turn, which may drop thoughts of earlier ones, and through the tokenizer; it may
lose its middle too.  Each turn is a prompt and a reply of its own then, and a segment as far as prompts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.agents.chat import ChatFormat, Message
from actors.agents.trim import MIDDLE, without_middle
from actors.branches import Branches, Noted
from actors.engines.messages import GenerateReply
from actors.tape import Tape
from protocol.trajectory import Segment, TurnKind


class Context(Protocol):
    @property
    def prompt(self) -> list[int]:
        """Ids of the next one."""
        ...

    @property
    def room(self) -> int:
        """Tokens that its reply may have; none where this is below 1."""
        ...

    def sampled(self, reply: GenerateReply, *, malformed: bool) -> None:
        """The prompt was answered."""
        ...

    def observed(self, messages: list[Message], noted: Noted) -> bool:
        """What the policy is told next.  False, and then it is no part of a segment, where no reply would fit behind
        it."""
        ...

    def segments(self) -> tuple[Segment, ...]: ...

    @property
    def order(self) -> Sequence[int]:
        """Of each of the model's turns, as they stand in the segments: its number among all of them."""
        ...


class WholeContext:
    """All that was said, as it was sampled."""

    def __init__(self, chat: ChatFormat, opening: list[Message], *, context_tokens: int) -> None:
        self._chat, self._context_tokens, self._replies = chat, context_tokens, 0
        self._tape = Tape()
        self._tape.given(TurnKind.PROMPT, chat.first_prompt(opening))

    @property
    def prompt(self) -> list[int]:
        return list(self._tape.token_ids)

    @property
    def room(self) -> int:
        return self._context_tokens - len(self._tape.token_ids)

    def sampled(self, reply: GenerateReply, *, malformed: bool) -> None:
        self._tape.sampled(reply, malformed=malformed)
        self._replies += 1

    def observed(self, messages: list[Message], noted: Noted) -> bool:
        ids = self._chat.delta(messages, closed=self._tape.token_ids[-1] == self._chat.turn_end)
        if len(ids) >= self.room:
            return False
        self._tape.given(TurnKind.OBSERVATION, ids, tool=noted.tool, exit_code=noted.exit_code, ms=noted.ms)
        return True

    def segments(self) -> tuple[Segment, ...]:
        return (self._tape.segment(),)

    @property
    def order(self) -> Sequence[int]:
        return range(self._replies)


@dataclass(slots=True, kw_only=True)
class Rendering:
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
    _messages: list[Message]
    _rendering: Rendering
    _branches: Branches = field(default_factory=Branches)
    _noted: Noted = field(default_factory=Noted)
    _prompt: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._render()

    def _render(self) -> None:
        mark = self._chat.tokenizer.encode(MIDDLE, add_special_tokens=False)
        whole, rendering = self._chat.first_prompt(self._messages), self._rendering
        self._prompt = without_middle(whole, rendering.prompt_tokens, head_share=rendering.head_share, mark=mark)

    @property
    def prompt(self) -> list[int]:
        return self._prompt

    @property
    def room(self) -> int:
        rendering, prompt = self._rendering, self._prompt
        left = rendering.total_tokens - self._branches.tokens - self._branches.new(prompt)
        return min(rendering.context_tokens - len(prompt), left)

    def sampled(self, reply: GenerateReply, *, malformed: bool) -> None:
        self._branches.add(self._prompt, reply, self._noted, malformed=malformed)
        said = self._chat.begun + self._chat.text(reply.token_ids)
        self._messages = [*self._messages, {"role": "assistant", "content": said}]

    def observed(self, messages: list[Message], noted: Noted) -> bool:
        self._messages, self._noted = [*self._messages, *messages], noted
        self._render()
        return self.room > 0

    def segments(self) -> tuple[Segment, ...]:
        if made := self._branches.segments():
            return made
        tape = Tape()
        tape.given(TurnKind.PROMPT, self._prompt)
        return (tape.segment(),)

    @property
    def order(self) -> Sequence[int]:
        return self._branches.order
