"""If these fail, whoever reads a run's events takes a clock that was set for hours that have passed, or what a full
disk left of them for all of them."""

from __future__ import annotations

import errno
from pathlib import Path

import orjson
import pytest

import protocol
from protocol.events import EventLog
from protocol.files import filesystem


class Clocks:
    """A wall clock that somebody sets, and a steady one."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0

    def passes(self, seconds: float, *, set_by: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + set_by


ROOT = Path(protocol.__file__).parent.parent
TELLS_THE_TIME = {
    "protocol/activity.py",
    "protocol/events.py",
    "protocol/run_directory/terminal_recordings.py",
    "protocol/run_directory/trained_log.py",
    "protocol/run_directory/trajectory_export.py",
    "actors/engines/server/process_reaper.py",
    "actors/gateway/server.py",
    "actors/workers/episode_runner.py",
}
"""Modules that tell people, files or other programs when something happened."""


def test_only_the_listed_modules_read_the_wall_clock() -> None:
    modules = [*(ROOT / "protocol").rglob("*.py"), *(ROOT / "actors").rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in modules if "time.time" in path.read_text()}
    assert found == TELLS_THE_TIME


def test_a_clock_jump_is_recorded_once_before_the_next_event(tmp_path: Path) -> None:
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


class Disk:
    """A disk on which appending fails while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        monkeypatch.setattr("protocol.events.write_atomically", self.write)

    def write(self, fd: int, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        filesystem.write_atomically(fd, data)


@pytest.mark.parametrize("more", [True, False])
def test_dropped_events_are_recorded_as_soon_as_the_disk_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    """With the next event, or where none comes when the log is closed."""
    disk, log = Disk(monkeypatch), EventLog(tmp_path, "buffer", "node-0")
    log.emit("first")
    disk.full = True
    for _ in range(3):
        log.emit("lost")
    disk.full = False
    if more:
        log.emit("next")
        log.emit("last")
    log.close()
    lines = [orjson.loads(line) for line in (tmp_path / "events" / "buffer.jsonl").read_bytes().splitlines()]
    later = [("next", 5), ("last", 6)] if more else []
    assert [(line["kind"], line["seq"]) for line in lines] == [("first", 0), ("events.dropped", 4), *later]
    assert lines[1]["events"] == 3


def test_a_disk_that_stays_full_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log = Disk(monkeypatch), EventLog(tmp_path, "buffer", "node-0")
    disk.full = True
    log.emit("lost")
    log.close()
    assert (tmp_path / "events" / "buffer.jsonl").read_bytes() == b""


def test_a_value_that_json_cannot_hold_raises_nothing(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "driver", "node-0")
    log.emit("admission.blocked", reason="a file named a\udcff", size=1 << 70)
    log.close()
    (line,) = (tmp_path / "events" / "driver.jsonl").read_bytes().splitlines()
    assert orjson.loads(line)["reason"] == "a file named a?"
