"""Reads the activity of engines, workers and the learner over a span of time from ``activity/``.

Lines hold running sums, so that any two lines give the exact activity between them: of a large file about as many lines
are read as there are time slots.  A restarted process counts from 0 again with a new ``started``.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np

from launch.monitor.api_types import ActivityTimeline, ActivityTrack
from protocol.activity import ACTIVITY_FOLDER
from protocol.run_directory.file_tail import decode_line

MAX_SLOTS = 1_000
MAX_ACTIVITY_FILES = 512
WHOLE_BYTES = 1 << 20
"""A span of at most this many bytes is read line by line."""
_LINE_BYTES = 4_096
"""Maximum length of a line."""


class _Line(msgspec.Struct):
    t: float
    kind: str
    started: float
    seconds: dict[str, float]


_decoded = partial(decode_line, msgspec.json.Decoder(_Line))


@dataclass(frozen=True, slots=True)
class TimeSlots:
    """A span of time in equal slots."""

    since: float
    until: float
    slots: int

    @property
    def slot_s(self) -> float:
        return (self.until - self.since) / self.slots


class _Ends(NamedTuple):
    first: float
    last: float


def read_activity(run_dir: Path, since: float | None, until: float | None, slots: int) -> ActivityTimeline:
    """Return the activity of every process; ``since`` and ``until`` default to the first and the last line."""
    paths = sorted((run_dir / ACTIVITY_FOLDER).glob("*.jsonl"))[:MAX_ACTIVITY_FILES]
    ends = {path: found for path in paths if (found := _ends(path)) is not None}
    if not ends:
        return ActivityTimeline(since or 0.0, until or 0.0, 0.0)
    since = min(each.first for each in ends.values()) if since is None else since
    until = max(each.last for each in ends.values()) if until is None else until
    span = TimeSlots(since, max(until, since + 1e-3), slots)
    tracks = [track for path in ends if (track := _read_track(path, span)) is not None]
    return ActivityTimeline(round(span.since, 3), round(span.until, 3), span.slot_s, sorted(tracks, key=_by_kind))


def _by_kind(track: ActivityTrack) -> tuple[int, str]:
    order = ("learner", "engine", "worker")
    return order.index(track.kind) if track.kind in order else len(order), track.name


def _read_track(path: Path, span: TimeSlots) -> ActivityTrack | None:
    sums = _RunningSums()
    for line in _lines(path, span):
        sums.add_line(line)
    return ActivityTrack(path.stem, sums.kind, sums.mean_activity(span)) if sums.times else None


@dataclass(slots=True)
class _RunningSums:
    """The sums of a process's states over time, which never decrease: a restarted process continues the earlier sums.

    Lines are added in order of time, and only their numbers are kept.
    """

    kind: str = ""
    times: array[float] = field(default_factory=lambda: array("d"))
    _sums: dict[str, array[float]] = field(default_factory=dict[str, "array[float]"])
    """State → its sum at each time."""
    _started: float | None = None
    _base: dict[str, float] = field(default_factory=dict[str, float])
    """Sums at the process's newest start."""
    _last: dict[str, float] = field(default_factory=dict[str, float])

    def add_line(self, line: _Line) -> None:
        if self._started not in {None, line.started}:
            self._base = self._last
            self._append(line.started, self._base)
        self.kind, self._started = line.kind, line.started
        base = self._base
        self._last = base | {state: base.get(state, 0.0) + seconds for state, seconds in line.seconds.items()}
        self._append(line.t, self._last)

    def _append(self, t: float, values: Mapping[str, float]) -> None:
        for state in values:
            if state not in self._sums:
                self._sums[state] = array("d", [0.0]) * len(self.times)
        self.times.append(max(t, self.times[-1]) if self.times else t)
        for state, column in self._sums.items():
            column.append(values.get(state, 0.0))

    def mean_activity(self, span: TimeSlots) -> dict[str, list[float]]:
        """Return state → mean activity in each slot, without states that do not occur."""
        edges = np.linspace(span.since, span.until, span.slots + 1)
        found: dict[str, list[float]] = {}
        for state, sums in self._sums.items():
            values = np.diff(np.interp(edges, self.times, sums)) / span.slot_s
            if values.any():
                found[state] = [round(value, 4) for value in values.tolist()]
        return found


def _ends(path: Path) -> _Ends | None:
    """Return the times of the first and the last line."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        first, last = _line_after(file, 0), _line_before(file, size)
        if first is not None and last is not None:
            return _Ends(min(first.started, first.t), last.t)
    return None


def _lines(path: Path, span: TimeSlots) -> Iterator[_Line]:
    """Yield the lines of the span and one on either side, or an even selection of about one per slot."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, _offset_of(file, size, span.since) - _LINE_BYTES)
        end = min(size, _offset_of(file, size, span.until) + _LINE_BYTES)
        if end - start <= WHOLE_BYTES:
            at = file.seek(start)
            at += len(file.readline(end - at)) if start else 0
            while raw := file.readline(end - at):
                at += len(raw)
                if raw.endswith(b"\n") and (line := _decoded(raw)) is not None:
                    yield line
            return
        for offset in np.linspace(start, end - _LINE_BYTES, 2 * span.slots).astype(int).tolist():
            if (line := _line_after(file, offset)) is not None:
                yield line
        if (line := _line_before(file, end)) is not None:
            yield line


def _offset_of(file: BinaryIO, size: int, t: float) -> int:
    """Return an offset near the first line that is not before ``t``: lines ascend."""
    low, high = 0, size
    while high - low > _LINE_BYTES:
        middle = (low + high) // 2
        line = _line_after(file, middle)
        low, high = (middle, high) if line is not None and line.t < t else (low, middle)
    return low


def _line_after(file: BinaryIO, offset: int) -> _Line | None:
    """Return the first whole, undamaged line that begins at or behind ``offset``."""
    file.seek(max(0, offset - 1))
    data = file.read(2 * _LINE_BYTES)
    start = data.find(b"\n") + 1 if offset else 0
    whole = data[start : data.rfind(b"\n") + 1]
    return next((line for raw in whole.splitlines() if (line := _decoded(raw)) is not None), None)


def _line_before(file: BinaryIO, offset: int) -> _Line | None:
    """Return the last whole line that ends at or before ``offset``."""
    start = max(0, offset - 2 * _LINE_BYTES)
    file.seek(start)
    data = file.read(offset - start)
    data = data[: data.rfind(b"\n") + 1]
    return next((line for raw in reversed(data.splitlines()) if (line := _decoded(raw)) is not None), None)
