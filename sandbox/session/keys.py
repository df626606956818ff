"""Encodes key names as in tmux into the bytes that a terminal sends for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NAMED: Mapping[str, str] = {
    "Enter": "\r",
    "Tab": "\t",
    "BTab": "\x1b[Z",
    "Space": " ",
    "Escape": "\x1b",
    "BSpace": "\x7f",
    "Up": "\x1b[A",
    "Down": "\x1b[B",
    "Right": "\x1b[C",
    "Left": "\x1b[D",
    "Home": "\x1b[H",
    "End": "\x1b[F",
    "IC": "\x1b[2~",
    "DC": "\x1b[3~",
    "PPage": "\x1b[5~",
    "PageUp": "\x1b[5~",
    "NPage": "\x1b[6~",
    "PageDown": "\x1b[6~",
    **{f"F{n}": f"\x1bO{final}" for n, final in enumerate("PQRS", 1)},
    **{f"F{n}": f"\x1b[{code}~" for n, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)},
}
_CONTROL = re.compile(r"(?:C-|\^)([@-_a-z?])")
_META = re.compile(r"M-(.)", re.DOTALL)


def encode_key(key: str) -> bytes:
    """Encode one key name (``Enter``, ``C-c``, ``M-x``, ``F5``).

    Any other text is typed as it is, with newlines as Enter.
    """
    if key in _NAMED:
        return _NAMED[key].encode()
    if control := _CONTROL.fullmatch(key):
        letter = control[1]
        return b"\x7f" if letter == "?" else bytes([ord(letter.upper()) & 0x1F])
    if meta := _META.fullmatch(key):
        return b"\x1b" + meta[1].encode()
    return key.replace("\r\n", "\r").replace("\n", "\r").encode(errors="surrogateescape")


def encode_keys(keys: str | Sequence[str]) -> bytes:
    """Encode one key or text, or several in a row."""
    return b"".join(map(encode_key, (keys,) if isinstance(keys, str) else keys))
