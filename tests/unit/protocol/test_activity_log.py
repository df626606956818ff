"""If these fail, the timeline shows engines and workers at what they were not at."""

from __future__ import annotations

from pathlib import Path

import orjson

from protocol.activity import ACTIVITY_FOLDER, ActivityLog
from tests.support.fakes.fake_clock import FakeClock


def open_activity_log(run_dir: Path, clock: FakeClock) -> ActivityLog:
    return ActivityLog(run_dir, "worker-0", "worker", clock, clock)


def read_activity(run_dir: Path) -> list[tuple[float, dict[str, float]]]:
    lines = (run_dir / ACTIVITY_FOLDER / "worker-0.jsonl").read_bytes().splitlines()
    return [(line["t"], line["seconds"]) for line in map(orjson.loads, lines)]


def test_things_at_once_are_added_up(tmp_path: Path) -> None:
    clock = FakeClock(100.0)
    log = open_activity_log(tmp_path, clock)
    with log.track("tool"):
        clock.now += 1.0
        with log.track("tool"), log.track("grading"):
            clock.now += 0.5
            log.write_if_changed()
        clock.now += 0.25
    log.write_if_changed()
    half = {"tool": 2.0, "grading": 0.5}
    assert read_activity(tmp_path) == [(100.0, {}), (101.5, half), (101.75, half | {"tool": 2.25})]


def test_a_running_activity_is_reported_before_it_ends(tmp_path: Path) -> None:
    clock = FakeClock(100.0)
    log = open_activity_log(tmp_path, clock)
    with log.track("waiting"):
        for _ in range(3):
            clock.now += 1.0
            log.write_if_changed()
    assert [seconds for _, seconds in read_activity(tmp_path)] == [
        {},
        {"waiting": 1.0},
        {"waiting": 2.0},
        {"waiting": 3.0},
    ]


def test_an_idle_hour_writes_no_lines_and_does_not_stretch_the_next_activity(tmp_path: Path) -> None:
    """Otherwise the second of work after it would be drawn over the whole hour."""
    clock = FakeClock(100.0)
    log = open_activity_log(tmp_path, clock)
    for _ in range(3600):
        clock.now += 1.0
        log.write_if_changed()
    with log.track("tool"):
        clock.now += 1.0
        log.write_if_changed()
    assert read_activity(tmp_path) == [(100.0, {}), (3700.0, {}), (3701.0, {"tool": 1.0})]


def test_a_restarted_process_records_its_restart(tmp_path: Path) -> None:
    clock = FakeClock(100.0)
    with open_activity_log(tmp_path, clock).track("tool"):
        clock.now += 1.0
    with (tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"t": 1, "torn')
    clock.now += 1.0
    open_activity_log(tmp_path, clock)
    lines = [orjson.loads(raw) for raw in (tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl").read_bytes().splitlines()]
    assert [line["started"] for line in lines] == [100.0, 102.0]


def test_a_clock_that_is_set_does_not_change_how_long_things_took(tmp_path: Path) -> None:
    steady, wall = FakeClock(100.0), FakeClock(100.0)
    log = ActivityLog(tmp_path, "worker-0", "worker", wall, steady)
    with log.track("tool"):
        steady.now += 2.0
        wall.now -= 3600.0
        log.write_if_changed()
    assert read_activity(tmp_path)[-1] == (-3500.0, {"tool": 2.0})


def test_an_unwritable_disk_does_not_stop_the_activity_log(tmp_path: Path) -> None:
    (tmp_path / ACTIVITY_FOLDER).write_text("in the way")
    log = open_activity_log(tmp_path, FakeClock(100.0))
    with log.track("tool"):
        log.write_if_changed()


def test_idle_time_before_the_first_activity_does_not_stretch_it(tmp_path: Path) -> None:
    """An engine's server takes minutes to start, and its log is not told meanwhile."""
    clock = FakeClock(100.0)
    log = open_activity_log(tmp_path, clock)
    clock.now += 90.0
    with log.track("generating"):
        clock.now += 1.0
    log.write_if_changed()
    assert read_activity(tmp_path) == [(100.0, {}), (190.0, {}), (191.0, {"generating": 1.0})]
