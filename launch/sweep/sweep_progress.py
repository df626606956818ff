"""How a sweep tells where it is: a table on a terminal, lines elsewhere; on standard error.

What a run is at, it has said last in its log; so nobody has to ask it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.sweep.axes import SweepPoint
from launch.sweep.point_results import PointRow, PointState, ResultColumn
from launch.sweep.run_logs import read_last_line

_LOOK_S = 1.0
_TELL_S = 60.0
"""Between two words on a run where there is no terminal."""
_STYLES = {
    PointState.ENDED: "green",
    PointState.FAILED: "red",
    PointState.BROKEN_OFF: "yellow",
    PointState.PLANNED: "dim",
}


class SweepProgressReporter:
    """Who is told of what begins and ends."""

    def __init__(self, console: Console, rows: Sequence[PointRow], columns: Sequence[ResultColumn]) -> None:
        self._console, self._columns = console, columns
        self._rows = {row.point.name: row for row in rows}
        self._running: dict[str, Path] = {}
        """Point's name → its log."""
        self._said: dict[str, str] = {}

    def point_started(self, point: SweepPoint, log: Path) -> None:
        self._running[point.name] = log
        self._console.print(f"{point.name}: begins")

    def point_ended(self, row: PointRow) -> None:
        name = row.point.name
        self._running.pop(name, None)
        self._said.pop(name, None)
        self._rows[name] = row
        outcome = row.result
        figures = ", ".join(
            f"{column.title} {column.format_value(outcome.figures[column.key])}"
            for column in self._columns
            if column.key in outcome.figures
        )
        self._console.print(f"{name}: {outcome.state.value}" + (f": {why}" if (why := outcome.why or figures) else ""))

    async def report_running(self) -> None:
        """Tell of those that run, until this is cancelled."""
        if not self._console.is_terminal:
            await self._tell_now_and_then()
            return
        wraps, self._console.soft_wrap = self._console.soft_wrap, False  # the table has the terminal's width
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while True:
                    live.update(self._panel(), refresh=True)
                    await asyncio.sleep(_LOOK_S)
        finally:
            self._console.soft_wrap = wraps

    async def _tell_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            self.print_new_lines()

    def print_new_lines(self) -> None:
        """What is new of each that runs, a line."""
        for name, log in self._running.items():
            said = read_last_line(log)
            if said and said != self._said.get(name):
                self._said[name] = said
                self._console.print(f"{name}: {said}")

    def _panel(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        for row in self._rows.values():
            name, state = row.point.name, row.result.state
            running = self._running.get(name)
            told = read_last_line(running) if running is not None else row.result.why
            style = "cyan" if running is not None else _STYLES[state]
            grid.add_row(
                Text(name, "bold"),
                Text("running" if running is not None else state.value, style),
                Text(told, no_wrap=True, overflow="ellipsis"),
            )
        return grid
