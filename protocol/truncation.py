"""Bounded text: head and tail of an output of any size."""

from __future__ import annotations

import re

from protocol.escape_sequences import CSI, OTHER, STRING

_ESCAPES = re.compile(f"{STRING}|{CSI}|{OTHER}|[\x1b\x07\x0e\x0f\x90\x98\x9b-\x9f]")
"""Escape sequences, and what remains of one that was cut; the bell and the shifts to another character set."""


class HeadTailBuffer:
    """Keeps the first ``head`` and the last ``tail`` bytes of its input, and counts the rest."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def dropped(self) -> int:
        """Number of bytes between head and tail that were not kept."""
        return max(0, self.total - len(self._head) - self._tail_limit)

    @property
    def tail(self) -> bytes:
        """Kept bytes of the end, after the head."""
        return bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""

    def text(self) -> str:
        """Return the kept text; the cut is marked and never splits a character."""
        tail = self.tail
        if not self.dropped:
            return (self._head + tail).decode(errors="replace")
        head = bytes(self._head)
        for back in range(1, min(4, len(head)) + 1):  # drop a character that the cut split
            if head[-back] & 0xC0 != 0x80:
                needs = 1 if head[-back] < 0x80 else 2 if head[-back] < 0xE0 else 3 if head[-back] < 0xF0 else 4
                if needs > back:
                    head = head[:-back]
                break
        start = 0
        while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
            start += 1
        cut = f"\n... [{self.dropped} bytes left out] ...\n"
        return head.decode(errors="replace") + cut + tail[start:].decode(errors="replace")


def truncate_middle(text: str, limit: int, note: str = "Output truncated") -> str:
    """Return ``text``, or half of ``limit`` characters from each end if it has more than ``limit``."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n... [{note}] ...\n{text[len(text) - half :]}"


def strip_escapes(text: str) -> str:
    """Return ``text`` without ANSI escape sequences."""
    return _ESCAPES.sub("", text)
