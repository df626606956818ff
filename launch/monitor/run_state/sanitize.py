"""Makes JSON and terminal output of sandboxes and models safe to show.  Pure.

:class:`TerminalSanitizer` is for terminal emulators: colours, cursor movement and erasing pass; sequences that reach a
person's own terminal, browser or clipboard do not.  Text is for :mod:`protocol.plain_text`.
"""

from __future__ import annotations

import re

from protocol.escape_sequences import CSI, OTHER, PASSED_BY_TMUX, STRING, STRING_BODY, STRING_START
from protocol.events import JsonValue
from protocol.plain_text import sanitize_text

_PIECE = re.compile(f"{STRING}|{CSI}|{OTHER}|\x1b")
_UNFINISHED = re.compile(
    rf"(?:\x1bP(?:{PASSED_BY_TMUX}\x1b?|\x1b(?:[^\x1b\\][^\x1b]*+\x1b?)?)"
    rf"|(?:\x1b\[|\x9b)[0-?]*[ -/]*|{STRING_START}{STRING_BODY}\x1b?|\x1b[ -/]*)\Z"
)
_MAX_HELD = 4_096
"""Maximum length of an unfinished sequence that is kept for the next piece."""
_PLAYED = re.compile(r"\x1b\[[0-9;:?]*[ABCDEFGHJKLMPSTXZ@`abdefghlmrsu]|\x1b[78=>DEHM]|\x1b[()][0-9A-B]")
_SILENT = re.compile("[\x00-\x07\x10-\x1a\x1c-\x1f\x7f-\x9f]")


def sanitize_json(value: JsonValue) -> JsonValue:
    """Sanitize every string in a JSON value."""
    match value:
        case str():
            return sanitize_text(value)
        case list():
            return [sanitize_json(each) for each in value]
        case dict():
            return {name: sanitize_json(each) for name, each in value.items()}
        case _:
            return value


class TerminalSanitizer:
    """Filters terminal output piece by piece; a sequence may begin in one piece and end in the next."""

    def __init__(self) -> None:
        self._held = ""

    def sanitize(self, text: str) -> str:
        """Return the safe part of the output so far."""
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        self._held = ""
        if unfinished is not None:
            text, held = text[: unfinished.start()], unfinished.group()
            self._held = held if len(held) <= _MAX_HELD else ""
        return _SILENT.sub("", _PIECE.sub(_kept, text))


def _kept(found: re.Match[str]) -> str:
    return found.group() if _PLAYED.fullmatch(found.group()) else ""
