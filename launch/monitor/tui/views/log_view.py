"""Shows the events of the run as sentences, newest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from launch.monitor.api_types import ResultPage
from launch.monitor.run_follower import RunFollower
from launch.monitor.run_state.event_text import LogLine, describe_event
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.views.base import TrajectoryRequested
from launch.monitor.tui.views.listing import STRETCHED, ListColumn, Listing
from protocol.cli import formatting
from protocol.run_directory.cursors import cursor_at_end
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.run_tail import RunTail

_KEPT = 20_000
_PAST_BYTES = 512 << 10
"""Number of bytes of each process's past events that are read when the log is opened."""


@dataclass(frozen=True, slots=True)
class NumberedLogLine:
    number: int
    line: LogLine


class EventLogReader:
    """The last lines of a run's events; one reader at a time, in any thread."""

    def __init__(self, run_dir: Path) -> None:
        past = {source: max(0, end - _PAST_BYTES) for source, end in cursor_at_end(run_dir, EVENT_FILES).items()}
        self._tail = RunTail(run_dir, EVENT_FILES, past)
        self._lines: deque[NumberedLogLine] = deque(maxlen=_KEPT)
        self._count = 0
        self._lock = Lock()

    def read_page(
        self, words: str, levels: Sequence[str], before: int | None, limit: int
    ) -> ResultPage[NumberedLogLine]:
        """Return a page of the lines that contain all words, newest first, before a line number."""
        with self._lock:
            self._read_new()
            found = [each for each in reversed(self._lines) if each.line.level in levels and _matches(each.line, words)]
        shown = list(islice((each for each in found if before is None or each.number < before), limit))
        left = bool(shown) and shown[-1].number > found[-1].number
        return ResultPage(shown, str(shown[-1].number) if left else None, len(found))

    def _read_new(self) -> None:
        for event in self._tail.iter_events():
            if (line := describe_event(event)) is not None:
                self._count += 1
                self._lines.append(NumberedLogLine(self._count, line))


def _matches(line: LogLine, words: str) -> bool:
    text = f"{line.kind} {line.node} {line.text}".casefold()
    return all(word in text for word in words.casefold().split())


def _sentence(row: NumberedLogLine) -> Text:
    return Text(formatting.one_line(row.line.text), styles.level_style(row.line.level))


_COLUMNS: Sequence[ListColumn[NumberedLogLine]] = (
    ListColumn("at", 8, lambda row: Text(formatting.format_time_of_day(row.line.t), styles.QUIET)),
    ListColumn("node", 10, lambda row: Text(row.line.node, styles.QUIET), wide=True),
    ListColumn("event", STRETCHED, _sentence),
)
_LEVELS = {
    "without details": ("info", "good", "warn", "bad"),
    "with details": ("detail", "info", "good", "warn", "bad"),
    "problems": ("warn", "bad"),
}


class LogList(Listing[NumberedLogLine]):
    """The log of events, whose orders are levels of detail."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "order", "Level")]
    SORTS = tuple(_LEVELS)
    HINT = "words in a line"
    NOUN = "lines"

    def __init__(self, follower: RunFollower, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(follower, id=id)
        self._sentences: EventLogReader | None = None

    def columns(self) -> Sequence[ListColumn[NumberedLogLine]]:
        return _COLUMNS

    def key(self, row: NumberedLogLine) -> str:
        return str(row.number)

    def read(self, words: str, sort: str, cursor: str | None, limit: int) -> ResultPage[NumberedLogLine]:
        if self._sentences is None:
            self._sentences = EventLogReader(self.follower.run_dir)
        return self._sentences.read_page(words, _LEVELS[sort], None if cursor is None else int(cursor), limit)

    def open(self, row: NumberedLogLine) -> None:
        if row.line.trajectory:
            self.post_message(TrajectoryRequested(row.line.trajectory))
