"""The part of an unfinished reply that is certain, which later tokens cannot take back.  Pure.

Its fields are always prefixes of those that :mod:`.completion` parses from the whole reply.  So incomplete characters
are held back, and text that may become a stop text, a marker or a call; if calls are possible also trailing white
space, which is dropped before a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.gateway.completion import CompletionReading, ParsedCompletion
from actors.tokens.reasoning import THINK_END, THINK_START, split_reasoning

_INCOMPLETE = "\ufffd"
"""Character to which an incomplete character's bytes decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCompletion:
    """An unfinished reply."""

    prompt_tokens: int
    reading: CompletionReading
    token_ids: Sequence[int] = ()
    """Token ids received so far."""

    def parse(self) -> ParsedCompletion:
        """Return the certain part, without calls, which are known only at the end."""
        text = _until(self.reading.text_of(self.token_ids).rstrip(_INCOMPLETE), self.reading.stops)
        return ParsedCompletion(*_read(text, self.reading), (), malformed=False)


def _read(text: str, reading: CompletionReading) -> tuple[str, str]:
    """Return thoughts and content."""
    if not reading.calls.marks or THINK_START.startswith(text.lstrip()):
        return "", ""
    opened = reading.starts_in_thinking
    thoughts, content, closed = split_reasoning(text, opened=opened)
    if not closed:
        thoughts, content, _ = split_reasoning(_until(text, (THINK_END,)), opened=opened)
    if not reading.may_call:
        return thoughts, content
    return thoughts, "" if content[:1].isspace() else _until(content, reading.calls.marks).rstrip()


def _until(text: str, marks: Sequence[str]) -> str:
    """Return ``text`` up to the first of ``marks``, or to where one may have begun."""
    return text[: min((_find(text, mark) for mark in marks), default=len(text))]


def _find(text: str, mark: str) -> int:
    if (at := text.find(mark)) >= 0:
        return at
    begun = (size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size]))
    return len(text) - next(begun, 0)
