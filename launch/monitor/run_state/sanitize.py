"""Makes text of sandboxes and models harmless for its readers.  Pure.

:func:`plain` is for text: no escape sequence, no control character but newline and tab, nothing that turns the
direction of writing.  :class:`SafeTerminal` is for what a terminal emulator plays: colours, cursor movement and erasing
pass; what talks to the person's own terminal, browser or clipboard does not.
"""

from __future__ import annotations

import re

from protocol.events import JsonValue

_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
_STRING = r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
"""OSC, DCS, SOS, PM and APC, up to their end."""
_OTHER = r"\x1b[ -/]*[0-~]"
_TURNING = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEQUENCE = re.compile(f"{_STRING}|{_CSI}|{_OTHER}")
_PIECE = re.compile(f"{_STRING}|{_CSI}|{_OTHER}|\x1b")
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}]")

_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)?\Z")
_MAX_HELD = 4_096
"""The longest unfinished sequence that is kept; a longer one is no sequence that anybody waits for."""
_PLAYED = re.compile(r"\x1b\[[0-9;:?]*[ABCDEFGHJKLMPSTXZ@`abdefghlmrsu]|\x1b[78=>DEHM]|\x1b[()][0-9A-B]")
_SILENT = re.compile("[\x00-\x07\x10-\x1a\x1c-\x1f\x7f-\x9f]")


def sanitize_text(text: str) -> str:
    """``text`` without what a terminal would obey."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def sanitize_json(value: JsonValue) -> JsonValue:
    """The same of every string in a value."""
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
    """Filters what is printed, piece by piece: a sequence may begin in one and end in the next."""

    def __init__(self) -> None:
        self._held = ""

    def sanitize(self, text: str) -> str:
        """Return the part that may be played now."""
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        self._held = ""
        if unfinished is not None:
            text, held = text[: unfinished.start()], unfinished.group()
            self._held = held if len(held) <= _MAX_HELD else ""
        return _SILENT.sub("", _PIECE.sub(_kept, text))


def _kept(found: re.Match[str]) -> str:
    return found.group() if _PLAYED.fullmatch(found.group()) else ""
