"""Reproduces the screen of a terminal recording at any moment.

Playback time shortens every pause to :data:`MAX_IDLE_S`.  Not thread-safe: one owner, in any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from launch.monitor.archive.recordings import read_sanitized_recording
from launch.monitor.run_state.sanitize import TerminalSanitizer
from protocol.run_directory.recording_reader import RecordingEvent, read_recording
from sandbox.session.terminal_emulator import StyledText, TerminalEmulator

MAX_IDLE_S = 2.0
_DRAWN_CHARS = 256 << 10
"""Number of characters before a moment that are drawn after a jump; earlier ones have left the screen."""


@dataclass(frozen=True, slots=True)
class ScreenImage:
    """The content of a terminal's screen."""

    lines: tuple[tuple[StyledText, ...], ...]
    cursor: tuple[int, int]
    """Row and column of the cursor, from 0."""


def capture_screen(drawing: TerminalEmulator) -> ScreenImage:
    rows, _ = drawing.size
    return ScreenImage(tuple(map(drawing.styled_row, range(rows))), drawing.screen().cursor)


def playback_times(real: Sequence[float]) -> list[float]:
    """Return the playback times of output that was printed at these times; both never decrease."""
    times: list[float] = []
    at, before = 0.0, 0.0
    for time in real:
        at += min(MAX_IDLE_S, max(0.0, time - before))
        before = max(before, time)
        times.append(at)
    return times


class RecordingPlayback:
    """Plays one recording."""

    def __init__(
        self, events: Sequence[RecordingEvent], marks: Sequence[float], size: tuple[int, int] = (24, 80)
    ) -> None:
        """``marks`` are the starts of turns in recording time; ``size`` is (rows, columns)."""
        self._real, self._texts = [t for t, _ in events], [text for _, text in events]
        self._times = playback_times(self._real)
        self._drawing = TerminalEmulator(*size)
        self._fed = 0
        self.marks = sorted(map(self.playback_time, marks))

    @property
    def is_empty(self) -> bool:
        return not self._times

    @property
    def length_s(self) -> float:
        return self._times[-1] if self._times else 0.0

    def playback_time(self, real_s: float) -> float:
        """Return the playback time of a time in the recording."""
        after = bisect_right(self._real, real_s)
        if after < len(self._times):
            return max(0.0, self._times[after] - min(MAX_IDLE_S, self._real[after] - real_s))
        return self.length_s

    def screen_at(self, playback_s: float) -> ScreenImage:
        """Return the screen at a playback time."""
        count = bisect_right(self._times, playback_s)
        if count < self._fed:
            self._drawing.clear()
            self._fed = 0
        for text in self._texts[max(self._fed, self._first_drawn(count)) : count]:
            self._drawing.feed(text)
        self._fed = count
        return capture_screen(self._drawing)

    def _first_drawn(self, count: int) -> int:
        room = _DRAWN_CHARS
        for index in range(count, self._fed, -1):
            room -= len(self._texts[index - 1])
            if room < 0:
                return index
        return self._fed


def read_playback(path: Path) -> RecordingPlayback:
    """Return the sanitized playback of a finished recording; an empty one if there is none."""
    size, events, marks = (24, 80), list[RecordingEvent](), list[float]()
    header = read_recording(path, 0, 1)
    size = (header.height, header.width)
    for raw in read_sanitized_recording(path):
        match orjson.loads(raw):
            case [int() | float() as t, "o", str() as text]:
                events.append((float(t), text))
            case [int() | float() as t, "m", str() as label] if label.startswith("turn "):
                marks.append(float(t))
            case _:
                pass
    return RecordingPlayback(events, marks, size)


class LiveScreen:
    """The current screen of a recording that is still being written."""

    _END_BYTES = 64 << 10

    def __init__(self, path: Path) -> None:
        self._path = path
        self._safe = TerminalSanitizer()
        header = read_recording(path, 0, 1)
        self._drawing = TerminalEmulator(header.height, header.width)
        try:
            self._offset = max(0, path.stat().st_size - self._END_BYTES)
        except OSError:
            self._offset = 0
        self._shown: ScreenImage | None = None

    def current_image(self) -> ScreenImage:
        """Return the screen after everything that was printed so far."""
        chunk = read_recording(self._path, self._offset)
        if chunk.offset > self._offset or self._shown is None:
            self._offset = chunk.offset
            for _, text in chunk.events:
                self._drawing.feed(self._safe.sanitize(text))
            self._shown = capture_screen(self._drawing)
        return self._shown
