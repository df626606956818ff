"""Bounds how much structure a JSON document has, while it arrives and before it is parsed.

Parsing takes time by the number of values, escapes and digits rather than by bytes, and no parser lets other threads
run meanwhile: 90 MiB of brackets would stop a process for 20 s.  The most of each takes a few tenths of a second, and
90 MiB in one string as much.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

MOST_MARKS = 200_000
"""Most strings of a document, and brackets, braces, commas and colons between them: about 0.2 s to parse."""
MOST_ESCAPES = 4 << 20
"""Most backslashes of a document: about 0.4 s, where each begins an escape of six bytes."""
MOST_PLAIN_BYTES = 8 << 20
"""Most bytes of a document outside its strings: about 0.3 s, where they are numbers of 4,300 digits."""


class TooMuchStructureError(ValueError):
    """A document has too many values, escapes or digits."""


class JsonStructure:
    """Counts the structure of a document that arrives in pieces."""

    def __init__(self, most_marks: int = MOST_MARKS) -> None:
        self._most_marks = most_marks
        self._marks = self._escapes = self._plain_bytes = 0
        self._in_string = self._escaped = False

    def add(self, piece: bytes) -> None:
        """Count another piece.  Raises :class:`TooMuchStructureError`."""
        if not piece:
            return
        self._escapes += piece.count(b"\\")
        if self._escaped:
            piece = piece[1:]
        plain = piece.replace(b"\\\\", b"")
        self._escaped = plain.endswith(b"\\")
        parts = plain.replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        strings = (len(parts) - self._in_string) // 2
        self._marks += strings + sum(map(outside.count, (b"[", b"{", b",", b":")))
        self._plain_bytes += len(outside)
        self._in_string ^= len(parts) % 2 == 0
        for count, most, what in (
            (self._marks, self._most_marks, "strings, brackets, braces, commas and colons"),
            (self._escapes, MOST_ESCAPES, "escapes"),
            (self._plain_bytes, MOST_PLAIN_BYTES, "bytes outside its strings"),
        ):
            if count > most:
                raise TooMuchStructureError(f"the JSON has more than {most:,} {what}")


@contextmanager
def garbage_collection_paused() -> Generator[None]:
    """Pause the collector of reference cycles while a document is parsed: it would search all objects of the process
    again and again for the sake of those that parsing makes, which takes ten times as long as the parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
