"""Prompts and their replies as segments of one trajectory.  Pure.

A prompt that extends an existing segment continues it; otherwise a new segment begins after the longest prefix that the
prompt shares with another one.  So shared prefixes are stored once, and each sampled token has loss in exactly one
segment, the one in which it was sampled.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from actors.engines.messages import GenerateReply
from actors.tokens.token_buffer import TokenBuffer
from protocol.trajectory import Segment, Turn, TurnKind


class ObservationSource(NamedTuple):
    """The tool calls that an observation reports."""

    tool: str = ""
    exit_code: int | None = None
    ms: float = 0.0


NO_OBSERVATION_SOURCE = ObservationSource()


class BranchPosition(NamedTuple):
    """The position after the first ``end`` tokens of a branch, its prefix included."""

    branch: int
    end: int


class _Shared(NamedTuple):
    """The prefix that a branch shares with a prompt; ordered by length, then whether the branch ends there."""

    tokens: int
    ends_there: bool
    branch: int


_NOTHING = _Shared(0, False, -1)


@dataclass(slots=True)
class _Branch:
    parent: int
    offset: int
    """Number of the parent's tokens that precede this branch's own."""
    opening: int
    """Number of tokens before its first reply."""
    whole: list[int]
    """All tokens of the branch, the prefix included."""
    buffer: TokenBuffer = field(default_factory=TokenBuffer)
    replies: list[int] = field(default_factory=list[int])
    """Numbers of the branch's replies among the replies of all branches."""


@dataclass(slots=True)
class SegmentTree:
    """Branches of token sequences that share prefixes."""

    _branches: list[_Branch] = field(default_factory=list[_Branch])
    _replies: int = 0

    @property
    def token_count(self) -> int:
        """Number of tokens in all segments."""
        return sum(len(branch.buffer.token_ids) for branch in self._branches)

    @property
    def reply_order(self) -> list[int]:
        """The numbers of the replies in the order of :meth:`segments`."""
        return [number for branch in self._branches for number in branch.replies]

    def tokens_until(self, position: BranchPosition) -> list[int]:
        """Return the tokens before ``position``."""
        return self._branches[position.branch].whole[: position.end]

    def count_new_tokens(self, prompt: list[int]) -> int:
        """Return the number of the prompt's tokens that no segment has yet."""
        return len(prompt) - self._shared(prompt).tokens

    def add_reply(
        self,
        prompt: list[int],
        reply: GenerateReply,
        source: ObservationSource | None = None,
        *,
        malformed: bool,
    ) -> BranchPosition:
        """Add a prompt and its reply, and return the position of the reply's end.

        ``source`` describes the new part of a later prompt, an observation; without one, a prompt that shares no more
        than another's opening is an opening too."""
        shared, ends_there, index = self._shared(prompt)
        opening = self._branches[index].opening if index >= 0 else 0
        is_opening = not shared or (source is None and shared <= opening)
        if not ends_there:
            self._branches.append(_Branch(index, shared, len(prompt) if is_opening else opening, prompt[:shared]))
            index = len(self._branches) - 1
        branch = self._branches[index]
        if added := prompt[shared:]:
            kind = TurnKind.PROMPT if is_opening else TurnKind.OBSERVATION
            source = source or NO_OBSERVATION_SOURCE
            branch.buffer.append_given(kind, added, tool=source.tool, exit_code=source.exit_code, ms=source.ms)
        branch.buffer.append_sampled(reply, malformed=malformed)
        branch.whole += added + reply.token_ids
        branch.replies.append(self._replies)
        self._replies += 1
        return BranchPosition(index, len(branch.whole))

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments, each after its parent."""
        found = (branch.buffer.to_segment(parent=branch.parent, offset=branch.offset) for branch in self._branches)
        order = self.reply_order
        if order == sorted(order):
            return tuple(found)
        numbers = iter(order)
        return tuple(replace(each, turns=tuple(_number(turn, numbers) for turn in each.turns)) for each in found)

    def _shared(self, ids: list[int]) -> _Shared:
        """Return the longest prefix that ``ids`` share with a branch."""
        best = _NOTHING
        for index, branch in enumerate(self._branches):
            if tokens := _common(ids, branch.whole):
                best = max(best, _Shared(tokens, tokens == len(branch.whole), index))
        return best


def _number(turn: Turn, numbers: Iterator[int]) -> Turn:
    return turn._replace(number=next(numbers)) if turn.kind is TurnKind.MODEL else turn


def _common(left: list[int], right: list[int]) -> int:
    """Return the length of the longest common prefix."""
    shortest = min(len(left), len(right))
    return bisect.bisect_left(range(1, shortest + 1), True, key=lambda length: left[:length] != right[:length])
