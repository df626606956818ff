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

from launch.sweep.axes import Point
from launch.sweep.figures import Column, Row, State
from launch.sweep.logs import last_line

_LOOK_S = 1.0
_TELL_S = 60.0
"""Between two words on a run where there is no terminal."""
_STYLES = {State.ENDED: "green", State.FAILED: "red", State.BROKEN_OFF: "yellow", State.PLANNED: "dim"}


class Told:
    """Who is told of what begins and ends."""

    def __init__(self, console: Console, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        self._console, self._columns = console, columns
        self._rows = {row.point.name: row for row in rows}
        self._running: dict[str, Path] = {}
        """Point's name → its log."""
        self._said: dict[str, str] = {}

    def begun(self, point: Point, log: Path) -> None:
        self._running[point.name] = log
        self._console.print(f"{point.name}: begins")

    def ended(self, row: Row) -> None:
        name = row.point.name
        self._running.pop(name, None)
        self._said.pop(name, None)
        self._rows[name] = row
        outcome = row.outcome
        figures = ", ".join(
            f"{column.title} {column.shown(outcome.figures[column.key])}"
            for column in self._columns
            if column.key in outcome.figures
        )
        self._console.print(f"{name}: {outcome.state.value}" + (f": {why}" if (why := outcome.why or figures) else ""))

    async def follow(self) -> None:
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
            self.tell()

    def tell(self) -> None:
        """What is new of each that runs, a line."""
        for name, log in self._running.items():
            said = last_line(log)
            if said and said != self._said.get(name):
                self._said[name] = said
                self._console.print(f"{name}: {said}")

    def _panel(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        for row in self._rows.values():
            name, state = row.point.name, row.outcome.state
            running = self._running.get(name)
            told = last_line(running) if running is not None else row.outcome.why
            style = "cyan" if running is not None else _STYLES[state]
            grid.add_row(
                Text(name, "bold"),
                Text("running" if running is not None else state.value, style),
                Text(told, no_wrap=True, overflow="ellipsis"),
            )
        return grid
