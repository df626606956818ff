"""Time that a process spends in each state: ``activity/<name>.jsonl``, one line a second while anything goes on.

A line is ``{"t": unix seconds, "kind": "worker", "started": unix seconds, "seconds": {"tool": 12.5, …}}``: for each
state the total time spent in it since ``started``.  Totals do not depend on which lines are read: the difference of two
is exact, however many lines between them were lost.  Writing never raises and never waits for a reader.  Nothing is
written while the process is idle; the next activity first writes a line that marks the end of the idle time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from protocol.files.filesystem import append_atomically, cut_torn_line

ACTIVITY_FOLDER = "activity"
WRITE_INTERVAL_S = 1.0


class ActivityLog:
    """Activity log of one process.  All methods must be called from one thread."""

    def __init__(
        self,
        run_dir: Path,
        name: str,
        kind: str,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """``now`` returns unix seconds; ``steady`` is a monotonic clock that measures durations."""
        self._kind, self._now, self._steady = kind, now, steady
        self._counts: Counter[str] = Counter()
        self._sums: dict[str, float] = {}
        self._since = steady()
        self._started = now()
        self._written: dict[str, float] = {}
        self._written_at = -WRITE_INTERVAL_S
        """Time of the last write, by the steady clock."""
        self._path = run_dir / ACTIVITY_FOLDER / f"{name}.jsonl"
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            cut_torn_line(self._path)
        self._write()

    @contextmanager
    def track(self, state: str) -> Generator[None]:
        """Count one more activity in ``state`` while the body runs."""
        if not self._counts.total() and self._steady() - self._written_at > WRITE_INTERVAL_S:
            self._write()  # marks the end of the idle time
        self._change(state, 1)
        try:
            yield
        finally:
            self._change(state, -1)

    def write_if_changed(self) -> None:
        """Write a line, if the sums have moved since the last one."""
        self._add_up()
        if self._sums != self._written:
            self._write()

    async def write_periodically(self) -> None:
        """Write every second until cancelled, and once more at the end."""
        try:
            while True:
                await asyncio.sleep(WRITE_INTERVAL_S)
                self.write_if_changed()
        finally:
            self.write_if_changed()

    def _change(self, state: str, by: int) -> None:
        self._add_up()
        self._counts[state] += by

    def _add_up(self) -> None:
        now = self._steady()
        passed, self._since = now - self._since, now
        for state, count in self._counts.items():
            if count:
                self._sums[state] = self._sums.get(state, 0.0) + count * passed

    def _write(self) -> None:
        line = {
            "t": round(self._now(), 3),
            "kind": self._kind,
            "started": round(self._started, 3),
            "seconds": {state: round(seconds, 3) for state, seconds in self._sums.items()},
        }
        with suppress(OSError):
            append_atomically(self._path, orjson.dumps(line) + b"\n")
            self._written, self._written_at = dict(self._sums), self._steady()
