"""A terminal's recording as it was at any moment of it.  No clock: who plays it says which moment.

Moments are of the film, in which nobody waits longer than :data:`MOST_IDLE_S` for the next thing to be printed.  Not
thread-safe: one owner asks, in whatever thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from launch.monitor.archive.recordings import safe_recording
from launch.monitor.plain import SafeTerminal
from launch.monitor.recording import CastEvent, read_cast
from sandbox.drawing import Drawing, Painted

MOST_IDLE_S = 2.0
_DRAWN_CHARS = 256 << 10
"""Printed before a moment that is jumped to: what came earlier has left the screen."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen to look at."""

    lines: tuple[tuple[Painted, ...], ...]
    cursor: tuple[int, int]
    """Row and column, from 0."""


def picture(drawing: Drawing) -> Picture:
    rows, _ = drawing.size
    return Picture(tuple(map(drawing.painted, range(rows))), drawing.screen().cursor)


def film_times(real: Sequence[float]) -> list[float]:
    """Moments of the film, of what was printed at these times; neither goes back."""
    times: list[float] = []
    at, before = 0.0, 0.0
    for time in real:
        at += min(MOST_IDLE_S, max(0.0, time - before))
        before = max(before, time)
        times.append(at)
    return times


class Reel:
    def __init__(self, events: Sequence[CastEvent], marks: Sequence[float], size: tuple[int, int] = (24, 80)) -> None:
        """``marks``: when turns began, in the recording's time.  ``size``: rows and columns."""
        self._real, self._texts = [t for t, _ in events], [text for _, text in events]
        self._times = film_times(self._real)
        self._drawing = Drawing(*size)
        self._fed = 0
        self.marks = sorted(map(self.film_time, marks))

    @property
    def is_empty(self) -> bool:
        return not self._times

    @property
    def length_s(self) -> float:
        return self._times[-1] if self._times else 0.0

    def film_time(self, real_s: float) -> float:
        """When that is shown which was printed at or after this time of the recording."""
        after = bisect_right(self._real, real_s)
        if after < len(self._times):
            return max(0.0, self._times[after] - min(MOST_IDLE_S, self._real[after] - real_s))
        return self.length_s

    def at(self, film_s: float) -> Picture:
        """The screen at a moment."""
        wanted = bisect_right(self._times, film_s)
        if wanted < self._fed:
            self._drawing.clear()
            self._fed = 0
        for text in self._texts[max(self._fed, self._first_drawn(wanted)) : wanted]:
            self._drawing.feed(text)
        self._fed = wanted
        return picture(self._drawing)

    def _first_drawn(self, wanted: int) -> int:
        room = _DRAWN_CHARS
        for index in range(wanted, self._fed, -1):
            room -= len(self._texts[index - 1])
            if room < 0:
                return index
        return self._fed


def read_reel(path: Path) -> Reel:
    """Of a finished recording; an empty one where there is none.  What it plays has been filtered."""
    size, events, marks = (24, 80), list[CastEvent](), list[float]()
    header = read_cast(path, 0, 1)
    size = (header.height, header.width)
    for raw in safe_recording(path):
        match orjson.loads(raw):
            case [int() | float() as t, "o", str() as text]:
                events.append((float(t), text))
            case [int() | float() as t, "m", str() as label] if label.startswith("turn "):
                marks.append(float(t))
            case _:
                pass
    return Reel(events, marks, size)


class LiveReel:
    """A recording that grows: the screen as it is now."""

    _END_BYTES = 64 << 10

    def __init__(self, path: Path) -> None:
        self._path = path
        self._safe = SafeTerminal()
        header = read_cast(path, 0, 1)
        self._drawing = Drawing(header.height, header.width)
        try:
            self._offset = max(0, path.stat().st_size - self._END_BYTES)
        except OSError:
            self._offset = 0
        self._shown: Picture | None = None

    def now(self) -> Picture:
        """With what was printed since it was asked before."""
        chunk = read_cast(self._path, self._offset)
        if chunk.offset > self._offset or self._shown is None:
            self._offset = chunk.offset
            for _, text in chunk.events:
                self._drawing.feed(self._safe.feed(text))
            self._shown = picture(self._drawing)
        return self._shown
