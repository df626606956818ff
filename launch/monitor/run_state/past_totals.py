"""Counts the totals of a long run's past in the background.

A reader starts near the end of files that grow with every episode, so that even a run of a hundred thousand episodes
shows at once.  The lines before that point are counted here, a piece at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from launch.monitor.run_state.event_rules import apply_event
from launch.monitor.run_state.model import MonitorState, RunTotals, add_counts
from protocol.run_directory.cursors import Cursor
from protocol.run_directory.file_tail import FileTail, TailedLine
from protocol.run_directory.json_fields import parse_json_object

RECENT_BYTES = 2 << 20
"""Size of the end of a long file that is read first."""
CHUNK_BYTES = 1 << 20
_EPISODIC = ("events/worker-", "events/buffer", "events/scheduler")
_COUNTED = tuple(
    f'"kind":"{kind}"'.encode()
    for kind in (
        *("episode.finished", "episode.failed", "trajectory.stored", "group.closed", "message.refused"),
        "episode.suspicious",
        *("events.dropped", "worker.started", "batch.skipped", "process.died", "process.hung"),
    )
)


def find_recent_offsets(run_dir: Path) -> Cursor:
    """Return the offsets at which the recent part of long files begins."""
    found: Cursor = {}
    for path in (run_dir / "events").glob("*.jsonl"):
        source = path.relative_to(run_dir).with_suffix("").as_posix()
        if source.startswith(_EPISODIC) and (start := _line_near_end(path)):
            found[source] = start
    return found


def _line_near_end(path: Path) -> int:
    """Return the offset of a line about :data:`RECENT_BYTES` before the end; 0 in a shorter file."""
    try:
        with path.open("rb") as file:
            start = file.seek(0, 2) - RECENT_BYTES
            if start <= 0:
                return 0
            file.seek(start)
            return start + len(file.readline())
    except OSError:
        return 0


class PastTotals:
    """Counts the totals of the lines before ``present``.  Not thread-safe."""

    def __init__(self, run_dir: Path, present: Cursor) -> None:
        self._left = [(FileTail(run_dir / f"{source}.jsonl"), end) for source, end in present.items()]
        self.state = MonitorState()
        """State of which only the totals and workers are meaningful."""

    @property
    def remaining_bytes(self) -> int:
        """Number of bytes that are not counted yet."""
        return sum(end - tail.offset for tail, end in self._left)

    def count_next_chunk(self) -> int:
        """Count a piece of one file and return its number of lines; 0 when nothing is left."""
        while self._left:
            tail, end = self._left[0]
            if lines := tail.read_lines(CHUNK_BYTES, end).lines:
                self._count(lines)
                return len(lines)
            del self._left[0]
        return 0

    def _count(self, lines: Sequence[TailedLine]) -> None:
        for raw, _ in lines:
            if any(kind in raw for kind in _COUNTED) and (event := parse_json_object(raw)) is not None:
                apply_event(self.state, event)
        self.state.running.clear()


def add_totals(past: RunTotals, present: RunTotals) -> RunTotals:
    """Return the sum of both totals."""
    values: Mapping[str, int | dict[str, int]] = {
        field.name: _sum(getattr(past, field.name), getattr(present, field.name)) for field in fields(RunTotals)
    }
    return RunTotals(**values)  # pyright: ignore[reportArgumentType]  each field with its own type


def _sum(past: int | dict[str, int], present: int | dict[str, int]) -> int | dict[str, int]:
    if isinstance(past, dict) and isinstance(present, dict):
        return add_counts(past, present)
    assert isinstance(past, int)  # noqa: S101  # a field has one type
    assert isinstance(present, int)  # noqa: S101  # as above
    return past + present
