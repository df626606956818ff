"""One taker and its thread: reads what is new, hands it on, counts what failed, and says the first failure once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launch.fanout.sink import Sink
from launch.fanout.steps import FILES, new_steps
from launch.monitor.tail import Cursor, RunReader

EVERY_S = 2.0


@dataclass(slots=True)
class Follower:
    name: str
    sink: Sink
    run_dir: Path
    say: Callable[[str], None]
    """Hears the first failure."""
    begin: Cursor = field(default_factory=dict[str, int])
    """From where in the run's files."""
    sent: int = 0
    failed: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """A daemon: a process that ends waits for it no longer than :meth:`stop` does."""
        self._thread = threading.Thread(target=self.run, name=f"fanout-{self.name}", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Until :meth:`ask_to_stop`, and then all that there is once more."""
        reader = RunReader(self.run_dir, FILES, self.begin)
        while not self._stop.wait(EVERY_S):
            self._hand_on(reader)
        self._hand_on(reader)
        self._guarded(self.sink.close)

    def send(self) -> None:
        """All that there is now, in this thread."""
        self.ask_to_stop()
        self.run()

    def _hand_on(self, reader: RunReader) -> None:
        """What is new."""
        for step, values in new_steps(reader):
            if self._guarded(lambda step=step, values=values: self.sink.step(step, values)):
                self.sent += 1

    def ask_to_stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _guarded(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001  # the boundary: whatever a tracker does, the run goes on
            self.failed += 1
            if self.failed == 1:
                self.say(f"{type(error).__name__}: {error}")
            return False
        return True
