"""Progress of an evaluation on standard error: a bar on a terminal, otherwise a few lines."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from launch.evaluation.standalone.attempt_runner import AttemptProgress
from protocol.evaluation import AttemptRecord

_PARTS = 10
"""Number of progress lines of a whole evaluation without a terminal."""


class EvaluationProgressReporter:
    def __init__(self, total: int, console: Console, bar: Progress | None) -> None:
        self._counted, self._console, self._bar = AttemptProgress(total), console, bar
        self._task = bar.add_task("", total=total) if bar is not None else None

    def add(self, record: AttemptRecord) -> None:
        counted = self._counted
        counted.add_record(record)
        if record.failure is not None:
            failure = record.failure
            self._console.print(f"{record.attempt_id.uid}: {failure.stage} failed: {failure.kind}: {failure.message}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=counted.done, description=counted.line())
        elif counted.done == counted.total or counted.done % max(1, counted.total // _PARTS) == 0:
            self._console.print(counted.line())


@contextmanager
def report_progress(total: int, console: Console) -> Generator[EvaluationProgressReporter]:
    if not console.is_terminal:
        yield EvaluationProgressReporter(total, console, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        yield EvaluationProgressReporter(total, console, bar)
