"""Telemetry: what happened, for people and readers, never for a decision.

Each process appends JSON lines to its own file ``events/<writer>.jsonl`` in the run directory, one ``write`` a line, so
that readers can tail it.  A line is ``{"t": unix seconds, "kind": str, "node": str, "writer": str, "seq": int, ...}``.
Writing never raises and never blocks on a reader.  What could not be written leaves a hole in ``seq``, and an event
``events.dropped`` says how many as soon as one can be written again, at the latest when the log is closed.  Where
somebody sets the clock, so that ``t`` does not tell how much time has passed, an event ``clock.jumped`` says it first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import orjson

from protocol.files.filesystem import cut_torn_line, write_atomically

_SET_S = 1.0
"""By less a wall clock may be off what has passed without anybody setting it."""

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"


class EmitEvent(Protocol):
    """The signature of :meth:`EventLog.emit`, for code that decides and has no log of its own."""

    def __call__(self, kind: str, **fields: JsonValue) -> None: ...


class EventLog:
    """Appends events of one process to one file, after its last whole line."""

    def __init__(
        self,
        run_dir: Path,
        writer: str,
        node: str,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = time.monotonic,
    ) -> None:
        """``steady``: a clock that nobody sets; None where ``now`` is none that anybody could."""
        self.writer, self.node = writer, node
        self._now, self._steady, self._seq = now, steady, 0
        self._ahead: float | None = None
        """Of the steady clock, at the last event."""
        self._unreported_drops = 0
        """Events that could not be written, and of which no event says so."""
        folder = run_dir / "events"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{writer}.jsonl"
        cut_torn_line(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, kind: str, **fields: JsonValue) -> None:
        """Append one event; a failure (disk full, say) is told later, not raised."""
        t = self._now()
        if set_by := self._clock_set_by(t):
            self._append(t, "clock.jumped", {"seconds": round(set_by, 3)})
        self._append(t, kind, fields)

    def _clock_set_by(self, t: float) -> float:
        """By how much the clock was set since the last event."""
        if self._steady is None:
            return 0.0
        ahead = t - self._steady()
        moved = 0.0 if self._ahead is None else ahead - self._ahead
        self._ahead = ahead
        return moved if abs(moved) > _SET_S else 0.0

    def _append(self, t: float, kind: str, fields: dict[str, JsonValue]) -> None:
        self._report_dropped(t)
        if not self._is_written(t, kind, fields):
            self._seq += 1
            self._unreported_drops += 1

    def _report_dropped(self, t: float) -> None:
        if self._unreported_drops and self._is_written(t, "events.dropped", {"events": self._unreported_drops}):
            self._unreported_drops = 0

    def _is_written(self, t: float, kind: str, fields: dict[str, JsonValue]) -> bool:
        head: dict[str, JsonValue] = {
            "t": round(t, 3),
            "kind": kind,
            "node": self.node,
            "writer": self.writer,
            "seq": self._seq,
        }
        try:
            write_atomically(self._fd, orjson.dumps(head | fields) + b"\n")
        except OSError:
            return False
        self._seq += 1
        return True

    def close(self) -> None:
        self._report_dropped(self._now())
        os.close(self._fd)
