"""Prompts and their replies as segments of one trajectory.  Pure.

A prompt goes on behind the segment that it repeats to its end; else a new segment begins behind as many tokens as the
prompt shares with another.  So what prompts have in common is stored once, and each sampled token has loss in exactly
one segment, the one in whose sequence it was sampled.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.engines.messages import GenerateReply
from actors.tape import Tape
from protocol.trajectory import Segment, TurnKind


class Noted(NamedTuple):
    """What an observation came of."""

    tool: str = ""
    exit_code: int | None = None
    ms: float = 0.0


class _Place(NamedTuple):
    """Behind the first ``shared`` tokens of a branch and of what came before it; −1 for none."""

    shared: int
    ends_there: bool
    branch: int


@dataclass(slots=True)
class _Branch:
    before: list[int]
    """Tokens that precede its own: the first of its parent's."""
    parent: int
    tape: Tape = field(default_factory=Tape)

    @property
    def whole(self) -> list[int]:
        return self.before + self.tape.token_ids


@dataclass(slots=True)
class Branches:
    _branches: list[_Branch] = field(default_factory=list[_Branch])

    @property
    def tokens(self) -> int:
        """In all segments."""
        return sum(len(branch.tape.token_ids) for branch in self._branches)

    def new(self, prompt: list[int]) -> int:
        """Tokens of the prompt that no segment has yet."""
        return len(prompt) - self._place(prompt).shared

    def add(self, prompt: list[int], reply: GenerateReply, noted: Noted, *, malformed: bool) -> None:
        """``prompt`` was answered with ``reply``; what is new in it was ``noted``."""
        shared, ends_there, index = self._place(prompt)
        if not ends_there:
            self._branches.append(_Branch(prompt[:shared], index))
            index = len(self._branches) - 1
        tape = self._branches[index].tape
        if added := prompt[shared:]:
            kind = TurnKind.OBSERVATION if shared else TurnKind.PROMPT
            tape.given(kind, added, tool=noted.tool, exit_code=noted.exit_code, ms=noted.ms)
        tape.sampled(reply, malformed=malformed)

    def segments(self) -> tuple[Segment, ...]:
        """Each after its parent."""
        return tuple(branch.tape.segment(parent=branch.parent, offset=len(branch.before)) for branch in self._branches)

    def _place(self, ids: list[int]) -> _Place:
        """The longest beginning that ``ids`` share with a branch; one that is all of that branch comes first."""
        best = _Place(0, False, -1)
        for index, branch in enumerate(self._branches):
            whole = branch.whole
            shared = _common(ids, whole)
            best = max(best, _Place(shared, shared == len(whole), index) if shared else best)
        return best


def _common(left: list[int], right: list[int]) -> int:
    """Length of the longest common beginning."""
    shortest = min(len(left), len(right))
    return bisect.bisect_left(range(1, shortest + 1), True, key=lambda length: left[:length] != right[:length])
