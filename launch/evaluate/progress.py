"""How an evaluation tells where it is: a bar on a terminal, a line now and then elsewhere; on standard error."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from launch.evaluate.attempts import Record
from launch.evaluate.runner import Counted

_PARTS = 10
"""Lines that a whole evaluation is worth where there is no terminal."""


class Told:
    """What has ended, and who is told of it."""

    def __init__(self, total: int, console: Console, bar: Progress | None) -> None:
        self._counted, self._console, self._bar = Counted(total), console, bar
        self._task = bar.add_task("", total=total) if bar is not None else None

    def add(self, record: Record) -> None:
        counted = self._counted
        counted.add(record)
        if record.failure is not None:
            failure = record.failure
            self._console.print(f"{record.id.uid}: {failure.stage} failed: {failure.kind}: {failure.message}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=counted.done, description=counted.line())
        elif counted.done == counted.total or counted.done % max(1, counted.total // _PARTS) == 0:
            self._console.print(counted.line())


@contextmanager
def progress(total: int, console: Console) -> Generator[Told]:
    if not console.is_terminal:
        yield Told(total, console, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        yield Told(total, console, bar)
