"""Follows one append-only file of lines that another process writes.

The position is a byte offset, so it stays true when the reader restarts and when a run is resumed into the same file.
A line counts once its newline is written: a torn last line is left for the next read.  A file that shrank or was
replaced is read again from its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20


class TailedLine(NamedTuple):
    """One whole line of a file."""

    raw: bytes | None
    """The line without its newline; None for a piece that is too long to be a line of ours."""
    end_offset: int
    """Offset just after the line."""


class AppendedLines(NamedTuple):
    """The whole lines that were appended since the last read."""

    lines: list[bytes]
    """Without their newlines."""
    start: int
    """Offset of the first of them."""
    replaced: bool
    """The file shrank or was replaced: these are its first lines, and earlier ones are void."""


class FileTail:
    """Reads whole lines behind an offset.  A file that is missing or unreadable has no lines."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.rotated = 0
        """How often the file shrank or was replaced."""
        self._inode: int | None = None

    def iter_lines(self, until: int | None = None) -> Iterator[TailedLine]:
        """Yield the unread lines, oldest first, up to byte ``until``.  The caller moves ``offset``, line by line."""
        try:
            end = self._size() if until is None else min(until, self._size())
            if end <= self.offset:
                return
            with self.path.open("rb") as file:
                at, rest = file.seek(self.offset), b""
                while chunk := file.read(min(_CHUNK_BYTES, end - file.tell())):
                    *whole, rest = (rest + chunk).split(b"\n")
                    for raw in whole:
                        at += len(raw) + 1
                        yield TailedLine(raw, at)
                    if len(rest) > _MAX_LINE_BYTES:
                        at += len(rest)
                        rest = b""
                        yield TailedLine(None, at)
        except OSError:
            return

    def read_lines(self, max_bytes: int) -> AppendedLines:
        """Read about ``max_bytes``, but at least one whole line if there is one, and move ``offset`` behind them."""
        rotated = self.rotated
        try:
            data = self._read_chunk(max_bytes) if self._size() > self.offset else b""
        except OSError:
            data = b""
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= _MAX_LINE_BYTES:  # no line of ours: skip to what follows
            self.offset += len(data)
        start, self.offset = self.offset, self.offset + end
        return AppendedLines(data[:end].split(b"\n")[:-1], start, self.rotated > rotated)

    @property
    def unread_bytes(self) -> int:
        """Bytes behind ``offset``."""
        try:
            return max(0, self.path.stat().st_size - self.offset)
        except OSError:
            return 0

    def _size(self) -> int:
        """Return the file's size, after starting over if it is another file or shorter than before."""
        stat = self.path.stat()
        if stat.st_size < self.offset or self._inode not in {None, stat.st_ino}:
            self.offset, self.rotated = 0, self.rotated + 1
        self._inode = stat.st_ino
        return stat.st_size

    def _read_chunk(self, max_bytes: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(max_bytes)
            while data and b"\n" not in data and len(data) < _MAX_LINE_BYTES and (more := file.read(max_bytes)):
                data += more
        return data
