"""Progress of work whose extent is known: a bar on a terminal, otherwise a few lines."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ShowProgress = Callable[[int, str], None]
"""Shows how many are done, and a line about them."""
_PARTS = 10
"""Number of lines for the whole work without a terminal."""


@contextmanager
def show_progress(total: int, console: Console) -> Generator[ShowProgress]:
    """Yield a function that shows how many of ``total`` are done."""
    if not console.is_terminal:

        def print_line(done: int, line: str) -> None:
            if done == total or done % max(1, total // _PARTS) == 0:
                console.print(line)

        yield print_line
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        shown = bar.add_task("", total=total)
        yield lambda done, line: bar.update(shown, completed=done, description=line)
