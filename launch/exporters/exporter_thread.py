"""Runs one exporter in a thread: reads new steps, sends them, counts failures and reports the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launch.exporters.metric_exporter import MetricExporter
from launch.exporters.step_metrics import STEP_FILES, read_new_steps
from protocol.run_directory.cursors import Cursor
from protocol.run_directory.run_tail import RunTail

POLL_INTERVAL_S = 2.0


@dataclass(slots=True)
class ExporterThread:
    name: str
    exporter: MetricExporter
    run_dir: Path
    on_first_failure: Callable[[str], None]
    """Called with the first failure."""
    start_cursor: Cursor = field(default_factory=dict[str, int])
    """Where in the run's files the exporter starts."""
    sent_steps: int = 0
    failed_calls: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, a daemon: a process that ends waits for it no longer than :meth:`join` does."""
        self._thread = threading.Thread(target=self.run, name=f"exporter-{self.name}", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Send new steps until :meth:`request_stop`, and then the rest once more."""
        tail = RunTail(self.run_dir, STEP_FILES, self.start_cursor)
        while not self._stop.wait(POLL_INTERVAL_S):
            self._send_new(tail)
        self._send_new(tail)
        self._guarded(self.exporter.close)

    def send_all(self) -> None:
        """Send all steps written so far, in the calling thread."""
        self.request_stop()
        self.run()

    def _send_new(self, tail: RunTail) -> None:
        """Send the steps that were written since the last call."""
        for step, values in read_new_steps(tail):
            if self._guarded(lambda step=step, values=values: self.exporter.log_step(step, values)):
                self.sent_steps += 1

    def request_stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread and return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _guarded(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001  the boundary: whatever a tracker does, the run goes on
            self.failed_calls += 1
            if self.failed_calls == 1:
                self.on_first_failure(f"{type(error).__name__}: {error}")
            return False
        return True
