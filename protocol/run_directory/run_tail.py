"""Follows the JSON-lines files of a run, merged by time.

A line that is not a JSON object is skipped and counted, and so is a file that shrank or was replaced
(:mod:`protocol.run_directory.file_tail`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.run_directory.cursors import Cursor
from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.json_fields import MAX_SAFE_INTEGER, Event, get_number, parse_json_object


class JsonlLine(NamedTuple):
    """One line of one file."""

    t: float
    """Unix seconds, from the line or else from the line before it."""
    source: str
    end_offset: int
    """Offset just after the line."""
    value: Event | None
    """None: the line is damaged."""


class TailStatistics(NamedTuple):
    files: int
    lines: int
    damaged: int
    rotated: int


class JsonlTail(FileTail):
    """Follows one JSON-lines file."""

    def __init__(self, path: Path, source: str, offset: int = 0) -> None:
        super().__init__(path, offset)
        self.source = source
        self._t = 0.0

    def iter_objects(self, until: int | None = None) -> Iterator[JsonlLine]:
        """Yield the unread lines, oldest first, up to byte ``until``.  The caller moves ``offset``, line by line."""
        for raw, end in self.iter_lines(until):
            value = None if raw is None else parse_json_object(raw)
            if value is not None and (t := get_number(value, "t")) is not None:
                if abs(t) <= MAX_SAFE_INTEGER:
                    self._t = t
                else:
                    value = None
            yield JsonlLine(self._t, self.source, end, value)


class RunTail:
    """Follows all of a run's JSON-lines files that match ``patterns``, from a cursor.

    Files that appear later are found.  The order across files is exact within one ``read`` and close between two.
    """

    def __init__(
        self,
        run_dir: Path,
        patterns: tuple[str, ...],
        cursor: Cursor | None = None,
        bounds: Callable[[], Cursor] | None = None,
    ) -> None:
        """``bounds`` returns the offsets up to which files may be read; a file that it does not name is not read."""
        self._run_dir, self._patterns, self._bounds = run_dir, patterns, bounds
        self._start = dict(cursor or {})
        self._tails: dict[str, JsonlTail] = {}
        self._known: set[Path] = set()
        self._lines = self._damaged = 0
        self.at_end = False
        """Whether the last :meth:`read` reached the end of what was written then."""

    def read(self, limit: int = 5_000) -> list[JsonlLine]:
        """Return at most ``limit`` new lines.  Damaged lines count against the limit and are left out."""
        self._discover()
        found: list[JsonlLine] = []
        taken = 0
        bounds = None if self._bounds is None else self._bounds()
        pending = [
            tail.iter_objects(None if bounds is None else bounds.get(source, 0)) for source, tail in self._tails.items()
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
