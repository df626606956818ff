"""Follows one append-only file of lines, as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_MAX_LINE_BYTES = 64 << 20


class AppendedLines(NamedTuple):
    """What was appended since the last look, in whole lines."""

    lines: list[bytes]
    """Without their ends."""
    start: int
    """Offset of the first of them."""
    replaced: bool
    """The file is another one, or shorter than before: these are its first lines, and earlier ones are void."""


class LineTail:
    """A line counts once its end is there: half a line is left for the next look."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self._inode: int | None = None

    def read(self, most_bytes: int) -> AppendedLines:
        """About ``most_bytes`` at most, but a whole line at least where there is one.  A file that is not there, or
        cannot be read, has no lines."""
        replaced = False
        try:
            stat = self.path.stat()
            if self._inode is not None and (stat.st_ino != self._inode or stat.st_size < self.offset):
                self.offset, replaced = 0, True
            self._inode = stat.st_ino
            if stat.st_size <= self.offset:
                return AppendedLines([], self.offset, replaced)
            data = self._chunk(most_bytes)
        except OSError:
            return AppendedLines([], self.offset, replaced)
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= _MAX_LINE_BYTES:  # no line of ours: what follows its end is
            self.offset += len(data)
        start, self.offset = self.offset, self.offset + end
        return AppendedLines(data[:end].split(b"\n")[:-1], start, replaced)

    @property
    def unread_bytes(self) -> int:
        """Bytes that were not read yet."""
        try:
            return max(0, self.path.stat().st_size - self.offset)
        except OSError:
            return 0

    def _chunk(self, most_bytes: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(most_bytes)
            while data and b"\n" not in data and len(data) < _MAX_LINE_BYTES and (more := file.read(most_bytes)):
                data += more
        return data
