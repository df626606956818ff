"""If these fail, whoever reads a run's events takes a clock that was set for hours that have passed."""

from __future__ import annotations

from pathlib import Path

import orjson

import protocol
from protocol.events import EventLog


class Clocks:
    """A wall clock that somebody sets, and a steady one."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0

    def passes(self, seconds: float, *, set_by: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + set_by


PROTOCOL = Path(protocol.__file__).parent
TELLS_THE_TIME = {"events.py", "recordings.py", "worker.py"}
"""For people: when something happened."""


def test_nothing_that_is_stored_or_waited_for_goes_by_a_clock_that_can_be_set() -> None:
    rooms = [*PROTOCOL.rglob("*.py"), *(PROTOCOL.parent / "actors").glob("*.py")]
    assert {path.name for path in rooms if "time.time" in path.read_text()} == TELLS_THE_TIME


def test_a_clock_that_is_set_is_told_once_before_what_happens_next(tmp_path: Path) -> None:
    clocks = Clocks()
    log = EventLog(tmp_path, "buffer", "node-3", lambda: clocks.wall, lambda: clocks.steady)
    log.emit("begun")
    clocks.passes(86_400.0, set_by=0.5)  # a day, and what a clock is slewed
    log.emit("a day later")
    clocks.passes(1.0, set_by=-3_600.0)
    log.emit("set back")
    clocks.passes(1.0)
    log.emit("goes on")
    log.close()
    lines = [orjson.loads(line) for line in (tmp_path / "events" / "buffer.jsonl").read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["begun", "a day later", "clock.jumped", "set back", "goes on"]
    assert [line["seq"] for line in lines] == [0, 1, 2, 3, 4]
    assert (lines[2]["seconds"], lines[2]["node"]) == (-3_600.0, "node-3")
