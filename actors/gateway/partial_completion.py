"""What may be told of a reply while it is sampled: only what nothing that comes later can take back.  Pure.

However a reply goes on, what is read here is the beginning of what :mod:`.answer` takes the whole of it apart into.
So a character that is not complete is held back, and what may become a stop text, a mark or a call; beside calls also
white space, which the whole reply has only where none comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.agents.hermes import CALL_START
from actors.gateway.completion import ParsedCompletion
from actors.tokens.reasoning import THINK_END, THINK_START, split_reasoning

_INCOMPLETE = "\ufffd"
"""What the last bytes decode to where they are no whole character yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCompletion:
    """A reply under way, and how it is to be read."""

    prompt_tokens: int
    text_of: Callable[[Sequence[int]], str]
    stops: Sequence[str]
    starts_in_thinking: bool
    may_call: bool
    token_ids: Sequence[int] = ()
    """That have come."""

    def parse(self) -> ParsedCompletion:
        """Without calls: those are known when all of them are."""
        text = _until(self.text_of(self.token_ids).rstrip(_INCOMPLETE), self.stops)
        return ParsedCompletion(
            *_read(text, opened=self.starts_in_thinking, may_call=self.may_call), (), malformed=False
        )


def _read(text: str, *, opened: bool, may_call: bool) -> tuple[str, str]:
    """Thoughts and content."""
    if THINK_START.startswith(text.lstrip()):
        return "", ""
    thoughts, content, closed = split_reasoning(text, opened=opened)
    if not closed:
        thoughts, content, _ = split_reasoning(_until(text, (THINK_END,)), opened=opened)
    if not may_call:
        return thoughts, content
    return thoughts, "" if content[:1].isspace() else _until(content, (CALL_START,)).rstrip()


def _until(text: str, marks: Sequence[str]) -> str:
    """Up to where the first of ``marks`` stands, or may have begun."""
    return text[: min((_place(text, mark) for mark in marks), default=len(text))]


def _place(text: str, mark: str) -> int:
    if (at := text.find(mark)) >= 0:
        return at
    begun = (size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size]))
    return len(text) - next(begun, 0)
