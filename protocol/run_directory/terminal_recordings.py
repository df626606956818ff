"""Terminal recordings: asciicast v2, appended live with one ``write`` per event, so that a reader can follow.

Recordings are for people.  The writer never raises into the episode and never waits for a reader: output beyond the
limits, or that could not be written, is counted in ``dropped_events`` and ``cut_chars``.  Text is recorded as the
sandbox printed it, with escape codes; readers treat it as untrusted (format: docs.asciinema.org/manual/asciicast/v2).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import orjson

MAX_CAST_EVENT_CHARS = 16_000
"""Length limit of one output; a longer one keeps its head and its tail."""
MAX_CAST_BYTES = 2_000_000
"""Size after which only notes, commands and markers are recorded, up to a tenth more."""

PROMPT = "\x1b[1;36m$\x1b[0m "
CONTINUATION = "\x1b[2m>\x1b[0m "
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BARE_NEWLINE = re.compile(r"(?<!\r)\n")


def turn_marker_label(turn: int) -> str:
    """Return the label of the marker at the model's ``turn``-th turn, counted from 0."""
    return f"turn {turn}"


class CastWriter:
    """Records one episode's terminal.  Create it with :meth:`open`; ``close`` it, or use it as a context manager."""

    def __init__(self, fd: int | None, *, clock: Callable[[], float], max_bytes: int = MAX_CAST_BYTES) -> None:
        self.dropped_events, self.cut_chars, self.bytes = 0, 0, 0
        self._fd, self._clock, self._start, self._max_bytes = fd, clock, clock(), max_bytes
        self._at_line_start, self._noted_full = True, False

    @classmethod
    def open(
        cls,
        path: Path,
        width: int = 80,
        height: int = 24,
        title: str = "",
        *,
        max_bytes: int = MAX_CAST_BYTES,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> Self:
        """Start a recording at ``path`` and replace an earlier one (of an earlier attempt at the same sample).

        If the file cannot be created, the writer records nothing and only counts.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            fd = None
        writer = cls(fd, clock=clock, max_bytes=max_bytes)
        header: dict[str, object] = {"version": 2, "width": width, "height": height, "timestamp": int(now())}
        writer._append(orjson.dumps(header | {"title": _encodable(title)}) + b"\n")
        return writer

    def record_command(self, text: str) -> None:
        """Record a command line that the agent typed."""
        lines = _CONTROL.sub("·", text.rstrip("\n").replace("\t", "    ")).split("\n")
        start = "" if self._at_line_start else "\n"
        self._event(start + PROMPT + ("\n" + CONTINUATION).join(lines) + "\n", always=True)

    def record_output(self, text: str) -> None:
        """Record output of the sandbox unchanged."""
        if text:
            self._event(text)

    def record_note(self, text: str) -> None:
        """Record a dimmed note: the result of grading, a limit that was reached."""
        start = "" if self._at_line_start else "\n"
        self._event(f"{start}\x1b[0;2m── {_CONTROL.sub('·', text)}\x1b[0m\n", always=True)

    def record_marker(self, label: str) -> None:
        """Record a marker, which players show and can seek to."""
        self._append(orjson.dumps([self._seconds(), "m", _encodable(label)]) + b"\n")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _event(self, text: str, *, always: bool = False) -> None:
        if len(text) > MAX_CAST_EVENT_CHARS:
            half = MAX_CAST_EVENT_CHARS // 2
            cut = len(text) - 2 * half
            self.cut_chars += cut
            text = f"{text[:half]}\r\n\x1b[0;2m── {cut:,} characters not recorded\x1b[0m\r\n{text[-half:]}"
        if self.bytes >= self._max_bytes * (1.1 if always else 1):
            self.dropped_events += 1
            if self._noted_full:
                return
            self._noted_full = True
            text = "\r\n\x1b[0;2m── this recording is full; later output is not recorded\x1b[0m\r\n"
        self._at_line_start = text.endswith("\n")
        data = _encodable(_BARE_NEWLINE.sub("\r\n", text))
        self._append(orjson.dumps([self._seconds(), "o", data]) + b"\n")

    def _seconds(self) -> float:
        return round(self._clock() - self._start, 3)

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            self.dropped_events += 1
            return
        try:
            self.bytes += os.write(self._fd, line)
        except OSError:
            self.dropped_events += 1


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON cannot hold, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
