"""Follows, or reads once, an append-only file of lines that another process writes.

The position is a byte offset, so it stays valid when the reader restarts and when a run is resumed into the same file.
A line counts once its newline is written: a torn last line is left for the next read.  A file that shrank or was
replaced is read again from its start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from protocol.run_directory.json_fields import Event, parse_json_object

T = TypeVar("T")

MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 64 << 10, 1 << 20
"""Bytes read at a time: few, as a reader of many files holds a chunk and its lines of each; more within a long line."""
MAX_LINE_BYTES = 64 << 20


class TailedLine(NamedTuple):
    """One whole line of a file."""

    raw: bytes
    """The line without its newline; empty for a piece that is too long to be a line of ours."""
    end_offset: int
    """Offset just after the line."""


class AppendedLines(NamedTuple):
    """The whole lines that were appended since the last read."""

    lines: list[TailedLine]
    replaced: bool
    """Whether the file shrank or was replaced: these are its first lines, and earlier ones are void."""


class FileTail:
    """Reads whole lines from an offset on.  A file that is missing or unreadable has no lines."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.rotated = 0
        """Number of times that the file shrank or was replaced."""
        self._inode: int | None = None
        self._torn = self._searched = 0
        """Offsets between which there is no newline, so that a poll searches only what is new of a torn line."""

    def iter_lines(self, until: int | None = None) -> Iterator[TailedLine]:
        """Yield the unread lines, oldest first, up to byte ``until``.  The caller moves ``offset``, line by line."""
        try:
            end = self._size() if until is None else min(until, self._size())
            if end <= self.offset:
                return
            with self.path.open("rb") as file:
                at, size = self.offset, MIN_CHUNK_BYTES
                read = file.seek(self._searched if self._torn == at and self._searched <= end else at)
                while chunk := file.read(min(size, end - read)):
                    *whole, _ = chunk.split(b"\n")
                    if whole:  # of a torn line that its writer replaced, what was searched may now have newlines
                        whole[:1] = (os.pread(file.fileno(), read - at, at) + whole[0]).split(b"\n")
                    size = MIN_CHUNK_BYTES if whole else min(2 * size, MAX_CHUNK_BYTES)
                    read += len(chunk)
                    for raw in whole:
                        at += len(raw) + 1
                        yield TailedLine(raw, at)
                    if read - at > MAX_LINE_BYTES:
                        at = read
                        yield TailedLine(b"", at)
                    self._torn, self._searched = at, read
        except OSError:
            return

    def read_lines(self, max_bytes: int, until: int | None = None) -> AppendedLines:
        """Read about ``max_bytes`` up to byte ``until``, but at least one whole line if there is one, and move
        ``offset`` behind them."""
        rotated, lines, start = self.rotated, list[TailedLine](), -1
        for line in self.iter_lines(until):
            start = self.offset if start < 0 else start
            self.offset = line.end_offset
            lines.append(line)
            if self.offset - start >= max_bytes:
                break
        return AppendedLines(lines, self.rotated > rotated)

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
            self._torn = self._searched = 0
        self._inode = stat.st_ino
        return stat.st_size


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file, without their newlines."""
    return (line.raw for line in FileTail(path).iter_lines())


def read_json_lines(path: Path) -> Iterator[Event]:
    """Yield the JSON objects of a file's whole lines; damaged lines are left out."""
    return (value for raw in read_lines(path) if (value := parse_json_object(raw)) is not None)


def read_newest_lines(path: Path, max_bytes: int) -> list[bytes]:
    """Return the lines in the last ``max_bytes`` of a file, newest first; the oldest may lack its beginning."""
    tail = FileTail(path)
    tail.offset = max(0, tail.unread_bytes - max_bytes)
    return [line.raw for line in tail.iter_lines()][::-1]


def decode_line(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    """Return the value of a line of JSON; None for a damaged line."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_lines(decoder: msgspec.json.Decoder[T], path: Path) -> Iterator[T]:
    """Yield the values of a file's whole lines of JSON; damaged lines are left out."""
    return (value for raw in read_lines(path) if (value := decode_line(decoder, raw)) is not None)
