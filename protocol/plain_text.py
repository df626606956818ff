"""Makes text of sandboxes, models, peers and files safe for a person's terminal or browser.  Pure."""

from __future__ import annotations

import re

from protocol.escape_sequences import CSI, OTHER, STRING

_TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
"""Marks of writing direction, which make a line read otherwise than it is."""
_BREAKING = "\u2028\u2029\ufff9-\ufffb\ud800-\udfff"
"""Ends of lines and paragraphs, marks of notes between lines, and halves of characters, which two of a kind may make a
control character again on their way to a terminal."""
_SEQUENCE = re.compile(f"{STRING}|{CSI}|{OTHER}")
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}{_BREAKING}]")


def sanitize_text(text: str) -> str:
    """Return the text without escape sequences, marks of writing direction, halves of characters, and control
    characters and ends of lines other than newline and tab."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def escape_controls(text: str) -> str:
    r"""Return the text of TOML or JSON with ``\uXXXX`` for each character that :func:`sanitize_text` removes: the
    values stay the same."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def sanitize_line(text: str) -> str:
    """Return the text as one line: sanitized, with ⏎ for each newline."""
    return sanitize_text(text).replace("\n", "⏎")
