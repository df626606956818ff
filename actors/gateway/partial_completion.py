"""The part of an unfinished reply that is certain, which later tokens cannot take back.  Pure.

Its fields are always prefixes of those that :mod:`.completion` parses from the whole reply.  So incomplete characters
are held back, and text that may become a stop text, a marker or a call; if calls are possible also trailing white
space, which is dropped before a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.agents.hermes import CALL_START
from actors.gateway.completion import ParsedCompletion
from actors.tokens.reasoning import THINK_END, THINK_START, split_reasoning

_INCOMPLETE = "\ufffd"
"""Character to which an incomplete character's bytes decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCompletion:
    """An unfinished reply, and the options to parse it."""

    prompt_tokens: int
    text_of: Callable[[Sequence[int]], str]
    stops: Sequence[str]
    starts_in_thinking: bool
    may_call: bool
    token_ids: Sequence[int] = ()
    """Token ids received so far."""

    def parse(self) -> ParsedCompletion:
        """Return the certain part, without calls, which are known only at the end."""
        text = _until(self.text_of(self.token_ids).rstrip(_INCOMPLETE), self.stops)
        return ParsedCompletion(
            *_read(text, opened=self.starts_in_thinking, may_call=self.may_call), (), malformed=False
        )


def _read(text: str, *, opened: bool, may_call: bool) -> tuple[str, str]:
    """Return thoughts and content."""
    if THINK_START.startswith(text.lstrip()):
        return "", ""
    thoughts, content, closed = split_reasoning(text, opened=opened)
    if not closed:
        thoughts, content, _ = split_reasoning(_until(text, (THINK_END,)), opened=opened)
    if not may_call:
        return thoughts, content
    return thoughts, "" if content[:1].isspace() else _until(content, (CALL_START,)).rstrip()


def _until(text: str, marks: Sequence[str]) -> str:
    """Return ``text`` up to the first of ``marks``, or to where one may have begun."""
    return text[: min((_find(text, mark) for mark in marks), default=len(text))]


def _find(text: str, mark: str) -> int:
    if (at := text.find(mark)) >= 0:
        return at
    begun = (size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size]))
    return len(text) - next(begun, 0)
