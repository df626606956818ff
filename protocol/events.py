"""Telemetry events, for people and readers; no decision depends on them.

Each process appends JSON lines to its own file ``events/<writer>.jsonl`` in the run directory, one ``write`` per line,
so that readers can tail it.  A line is ``{"t": unix seconds, "kind": str, "node": str, "writer": str, "seq": int,
...}``.
Writing never raises and never blocks on a reader.  An event that could not be written leaves a gap in ``seq``, and an
event ``events.dropped`` counts the gap as soon as writing works again, or when the log is closed.  When the system
clock is changed, so that ``t`` no longer measures elapsed time, an event ``clock.jumped`` is written first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Never, Protocol, TypeAlias

import orjson

from protocol.files.filesystem import cut_torn_line, write_atomically
from protocol.processes.loop_lag import measure_loop_lag

_SET_S = 1.0
"""Smallest difference from the steady clock that counts as a change of the system clock."""

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"


class EmitEvent(Protocol):
    """Signature of :meth:`EventLog.emit`, for code without a log of its own."""

    def __call__(self, kind: str, **fields: JsonValue) -> None: ...


class EventLog:
    """Appends the events of one process to one file, after its last complete line."""

    def __init__(
        self,
        run_dir: Path,
        writer: str,
        node: str,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = time.monotonic,
    ) -> None:
        """``steady`` is a monotonic clock; None if ``now`` is a clock that cannot jump."""
        self.writer, self.node = writer, node
        self._now, self._steady, self._seq = now, steady, 0
        self._ahead: float | None = None
        """Lead of ``now`` over the steady clock at the last event, in seconds."""
        self._unreported_drops = 0
        """Events that could not be written and are not yet reported."""
        folder = run_dir / "events"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{writer}.jsonl"
        cut_torn_line(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, kind: str, **fields: JsonValue) -> None:
        """Append one event; a failure such as a full disk is reported later, not raised."""
        t = self._now()
        if set_by := self._clock_set_by(t):
            self._append(t, "clock.jumped", {"seconds": round(set_by, 3)})
        self._append(t, kind, fields)

    def _clock_set_by(self, t: float) -> float:
        """Return how far the clock was changed since the last event, in seconds."""
        if self._steady is None:
            return 0.0
        ahead = t - self._steady()
        moved = 0.0 if self._ahead is None else ahead - self._ahead
        self._ahead = ahead
        return moved if abs(moved) > _SET_S else 0.0

    def _append(self, t: float, kind: str, fields: dict[str, JsonValue]) -> None:
        self._report_dropped(t)
        if not self._try_write(t, kind, fields):
            self._seq += 1
            self._unreported_drops += 1

    def _report_dropped(self, t: float) -> None:
        if self._unreported_drops and self._try_write(t, "events.dropped", {"events": self._unreported_drops}):
            self._unreported_drops = 0

    def _try_write(self, t: float, kind: str, fields: dict[str, JsonValue]) -> bool:
        head: dict[str, JsonValue] = {
            "t": round(t, 3),
            "kind": kind,
            "node": self.node,
            "writer": self.writer,
            "seq": self._seq,
        }
        try:
            write_atomically(self._fd, _encode(head | fields) + b"\n")
        except OSError:
            return False
        self._seq += 1
        return True

    async def emit_loop_lag(self) -> Never:
        """Emit the lag of the running event loop every 30 s, until cancelled."""
        await measure_loop_lag(lambda lag: self.emit("loop.measured", max_ms=lag.max_ms, p99_ms=lag.p99_ms))

    def close(self) -> None:
        self._report_dropped(self._now())
        os.close(self._fd)


def _encode(event: dict[str, JsonValue]) -> bytes:
    """Encode an event; halves of characters, which foreign text may have and UTF-8 has not, become question marks."""
    try:
        return orjson.dumps(event)
    except TypeError:  # they, or an integer beyond 64 bits
        return json.dumps(event, ensure_ascii=False).encode(errors="replace")
