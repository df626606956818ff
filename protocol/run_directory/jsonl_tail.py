"""Follows JSON-lines files that other processes append to.

A position is a byte offset per file, so it stays true when the reader restarts and when a run is resumed into the same
files.  A line counts once its newline is there: a torn last line is left for the next look.  A line that is not a JSON
object is stepped over and counted; a file that shrank or was replaced is read again from its start and counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote

import orjson

from protocol.events import JsonValue

Event: TypeAlias = dict[str, JsonValue]
Cursor: TypeAlias = dict[str, int]
"""Source (path in the run directory, without ``.jsonl``) → byte offset of the first unread byte."""

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 8 << 20
_MAX_SAFE_INTEGER = (1 << 53) - 1
"""Beyond it a number is nobody's count or time, but damage."""


class JsonlLine(NamedTuple):
    t: float
    """Unix seconds as the line says, or the time of the line before it."""
    source: str
    end_offset: int
    """Offset just after this line."""
    value: Event | None
    """None: the line is damaged."""


class TailStatistics(NamedTuple):
    files: int
    lines: int
    damaged: int
    rotated: int


class JsonlTail:
    """One file."""

    def __init__(self, path: Path, source: str, offset: int = 0) -> None:
        self.path, self.source, self.offset = path, source, offset
        self.rotated = 0
        self._inode: int | None = None
        self._t = 0.0

    def read_pending(self, until: int | None = None) -> Iterator[JsonlLine]:
        """Whole lines after ``offset``, oldest first, up to byte ``until``.  Does not move ``offset``: the consumer
        does, line by line."""
        try:
            stat = self.path.stat()
            if stat.st_size < self.offset or self._inode not in (None, stat.st_ino):
                self.offset, self.rotated = 0, self.rotated + 1
            self._inode = stat.st_ino
            end = stat.st_size if until is None else min(until, stat.st_size)
            if end <= self.offset:
                return
            with self.path.open("rb") as file:
                file.seek(self.offset)
                yield from self._split(iter(lambda: file.read(min(_CHUNK_BYTES, end - file.tell())), b""))
        except OSError:
            return

    def _split(self, chunks: Iterable[bytes]) -> Iterator[JsonlLine]:
        at, rest = self.offset, b""
        for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for raw in whole:
                at += len(raw) + 1
                yield self._line(raw, at)
            if len(rest) > _MAX_LINE_BYTES:
                at += len(rest)
                rest = b""
                yield JsonlLine(self._t, self.source, at, None)

    def _line(self, raw: bytes, end: int) -> JsonlLine:
        value = parse_json_object(raw)
        if value is not None and (t := get_number(value, "t")) is not None:
            if abs(t) <= _MAX_SAFE_INTEGER:
                self._t = t
            else:
                value = None
        return JsonlLine(self._t, self.source, end, value)


class RunTail:
    """All of a run's JSON-lines files that match ``patterns``, merged by time, from a cursor.

    Files that appear later are found.  Order across files is exact within one ``read`` and close between two.
    """

    def __init__(
        self,
        run_dir: Path,
        patterns: tuple[str, ...],
        cursor: Cursor | None = None,
        bounds: Callable[[], Cursor] | None = None,
    ) -> None:
        """``bounds``: nothing is read beyond these offsets; a file that they do not name waits."""
        self._run_dir, self._patterns, self._bounds = run_dir, patterns, bounds
        self._start = dict(cursor or {})
        self._tails: dict[str, JsonlTail] = {}
        self._known: set[Path] = set()
        self._lines = self._damaged = 0
        self.at_end = False
        """The last :meth:`read` came to the end of what was written then."""

    def read(self, limit: int = 5_000) -> list[JsonlLine]:
        """At most ``limit`` new lines.  Damaged ones are only counted, against it too."""
        self._discover()
        found: list[JsonlLine] = []
        taken = 0
        bounds = None if self._bounds is None else self._bounds()
        pending = [
            tail.read_pending(None if bounds is None else bounds.get(source, 0)) for source, tail in self._tails.items()
        ]
        merged = heapq.merge(*pending, key=lambda line: line.t)
        for line in merged:
            self._tails[line.source].offset = line.end_offset
            taken += 1
            if line.value is None:
                self._damaged += 1
            else:
                found.append(line)
            if taken >= limit:
                break
        self._lines += taken
        self.at_end = taken < limit
        return found

    @property
    def cursor(self) -> Cursor:
        return self._start | {source: tail.offset for source, tail in self._tails.items()}

    def statistics(self) -> TailStatistics:
        rotated = sum(tail.rotated for tail in self._tails.values())
        return TailStatistics(len(self._tails), self._lines, self._damaged, rotated)

    def _discover(self) -> None:
        for pattern in self._patterns:
            for path in sorted(set(self._run_dir.glob(pattern)) - self._known):
                source = path.relative_to(self._run_dir).with_suffix("").as_posix()
                self._known.add(path)
                self._tails[source] = JsonlTail(path, source, self._start.get(source, 0))


def cursor_at_end(run_dir: Path, patterns: tuple[str, ...]) -> Cursor:
    """Where what is written by now ends: a reader from there gives only what is new."""
    paths = [path for pattern in patterns for path in run_dir.glob(pattern)]
    return {path.relative_to(run_dir).with_suffix("").as_posix(): path.stat().st_size for path in paths}


def parse_json_object(raw: bytes) -> Event | None:
    """The JSON object in ``raw``, or None."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return cast("Event", value) if isinstance(value, dict) else None


def format_cursor(cursor: Cursor) -> str:
    """One line for an event-stream id."""
    return ",".join(f"{quote(source, safe='/')}:{offset}" for source, offset in sorted(cursor.items()))


def parse_cursor(text: str) -> Cursor:
    """Raises ValueError for anything that :func:`format_cursor` did not write."""
    cursor: Cursor = {}
    for part in filter(None, text.split(",")):
        source, colon, offset = part.rpartition(":")
        if not colon or not offset.isascii() or not offset.isdigit():
            raise ValueError(f"{part!r} is not source:offset")
        cursor[unquote(source)] = int(offset)
    return cursor


def get_text(event: Event, key: str, default: str = "") -> str:
    value = event.get(key)
    return value if isinstance(value, str) else default


def get_number(event: Event, key: str) -> float | None:
    value = event.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def get_integer(event: Event, key: str, default: int = 0) -> int:
    """One that JSON can hold again, which what nobody counts need not be."""
    value = get_number(event, key)
    return default if value is None or abs(value) > _MAX_SAFE_INTEGER else int(value)


def get_mapping(event: Event, key: str) -> Event:
    value = event.get(key)
    return value if isinstance(value, dict) else {}


def get_list(event: Event, key: str) -> list[JsonValue]:
    value = event.get(key)
    return value if isinstance(value, list) else []


def get_numbers(event: Event, key: str) -> list[float]:
    return [
        float(item) for item in get_list(event, key) if isinstance(item, int | float) and abs(item) <= _MAX_SAFE_INTEGER
    ]
