"""Progress of an evaluation on standard error, with a line for each attempt that failed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console

from launch.evaluation.standalone.attempt_runner import AttemptProgress
from protocol.cli.progress import ShowProgress, show_progress
from protocol.evaluation import AttemptRecord


class EvaluationProgressReporter:
    def __init__(self, total: int, console: Console, show: ShowProgress) -> None:
        self._counted, self._console, self._show = AttemptProgress(total), console, show

    def add(self, record: AttemptRecord) -> None:
        self._counted.add_record(record)
        if record.failure is not None:
            failure = record.failure
            self._console.print(f"{record.attempt_id.uid}: {failure.stage} failed: {failure.kind}: {failure.message}")
        self._show(self._counted.done, self._counted.line())


@contextmanager
def report_progress(total: int, console: Console) -> Generator[EvaluationProgressReporter]:
    with show_progress(total, console) as show:
        yield EvaluationProgressReporter(total, console, show)
