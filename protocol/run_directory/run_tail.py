"""Follows and reads the JSON-lines files of a run, merged by time.

A line that is not a JSON object is skipped and counted, and so is a file that shrank or was replaced
(:mod:`protocol.run_directory.file_tail`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from protocol.integers import MAX_SAFE_INTEGER
from protocol.run_directory.cursors import Cursor
from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.json_fields import Event, get_number, parse_json_object
from protocol.run_directory.layout import EVENT_FILES


class JsonlLine(NamedTuple):
    """One line of one file."""

    t: float
    """Unix seconds, from the line or else from the line before it."""
    source: str
    """The file's path in the run directory, without ``.jsonl``."""
    end_offset: int
    """Offset just after the line."""
    value: Event | None
    """The object in the line; None if the line is damaged."""


class TailStatistics(NamedTuple):
    files: int
    lines: int
    damaged: int
    rotated: int


class RunTail:
    """Follows all of a run's JSON-lines files that match ``patterns``, from a cursor.

    Files that appear later are found.  The order across files is exact within one ``read`` and close between two.
    """

    def __init__(
        self,
        run_dir: Path,
        patterns: tuple[str, ...] = EVENT_FILES,
        cursor: Cursor | None = None,
        bounds: Callable[[], Cursor] | None = None,
    ) -> None:
        """``bounds`` returns the offsets up to which files may be read; a file that it does not name is not read."""
        self._run_dir, self._patterns, self._bounds = run_dir, patterns, bounds
        self._start = dict(cursor or {})
        self._tails: dict[str, FileTail] = {}
        self._times: dict[str, float] = {}
        self._known: set[Path] = set()
        self._lines = self._damaged = 0
        self.at_end = False
        """Whether the last :meth:`read` reached the end of what was written then."""

    def read(self, limit: int = 5_000) -> list[JsonlLine]:
        """Return at most ``limit`` new lines.  Damaged lines count against the limit and are left out."""
        lines = list(islice(self._iter_lines(), limit))
        self.at_end = len(lines) < limit
        return [line for line in lines if line.value is not None]

    def iter_events(self) -> Iterator[Event]:
        """Yield the objects of all new lines."""
        return (line.value for line in self._iter_lines() if line.value is not None)

    @property
    def cursor(self) -> Cursor:
        return self._start | {source: tail.offset for source, tail in self._tails.items()}

    def statistics(self) -> TailStatistics:
        rotated = sum(tail.rotated for tail in self._tails.values())
        return TailStatistics(len(self._tails), self._lines, self._damaged, rotated)

    def _iter_lines(self) -> Iterator[JsonlLine]:
        """Yield the new lines of all files by time, and move the cursor behind each."""
        self._discover()
        bounds = None if self._bounds is None else self._bounds()
        pending = [
            self._parsed(source, tail, None if bounds is None else bounds.get(source, 0))
            for source, tail in self._tails.items()
        ]
        for line in heapq.merge(*pending, key=lambda line: line.t):
            self._tails[line.source].offset = line.end_offset
            self._lines += 1
            self._damaged += line.value is None
            yield line

    def _parsed(self, source: str, tail: FileTail, until: int | None) -> Iterator[JsonlLine]:
        for raw, end in tail.iter_lines(until):
            value = parse_json_object(raw)
            if value is not None and (t := get_number(value, "t")) is not None:
                if abs(t) <= MAX_SAFE_INTEGER:
                    self._times[source] = t
                else:
                    value = None
            yield JsonlLine(self._times.get(source, 0.0), source, end, value)

    def _discover(self) -> None:
        for pattern in self._patterns:
            for path in sorted(set(self._run_dir.glob(pattern)) - self._known):
                source = path.relative_to(self._run_dir).with_suffix("").as_posix()
                self._known.add(path)
                self._tails[source] = FileTail(path, self._start.get(source, 0))


def read_events(run_dir: Path) -> Iterator[Event]:
    """Yield the events that a run has written, by time; damaged lines are left out."""
    return RunTail(run_dir).iter_events()
