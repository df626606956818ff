"""If these fail, the timeline shows engines and workers at what they were not at."""

from __future__ import annotations

from pathlib import Path

import orjson

from protocol.activity import ACTIVITY_FOLDER, ActivityLog


class Clock:
    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


def lane(run_dir: Path, clock: Clock) -> ActivityLog:
    return ActivityLog(run_dir, "worker-0", "worker", clock, clock)


def told(run_dir: Path) -> list[tuple[float, dict[str, float]]]:
    lines = (run_dir / ACTIVITY_FOLDER / "worker-0.jsonl").read_bytes().splitlines()
    return [(line["t"], line["seconds"]) for line in map(orjson.loads, lines)]


def test_things_at_once_are_added_up(tmp_path: Path) -> None:
    clock = Clock()
    log = lane(tmp_path, clock)
    with log.track("tool"):
        clock.t += 1.0
        with log.track("tool"), log.track("grading"):
            clock.t += 0.5
            log.write_if_changed()
        clock.t += 0.25
    log.write_if_changed()
    half = {"tool": 2.0, "grading": 0.5}
    assert told(tmp_path) == [(100.0, {}), (101.5, half), (101.75, half | {"tool": 2.25})]


def test_what_goes_on_is_told_before_it_ends(tmp_path: Path) -> None:
    clock = Clock()
    log = lane(tmp_path, clock)
    with log.track("waiting"):
        for _ in range(3):
            clock.t += 1.0
            log.write_if_changed()
    assert [seconds for _, seconds in told(tmp_path)] == [{}, {"waiting": 1.0}, {"waiting": 2.0}, {"waiting": 3.0}]


def test_a_quiet_hour_takes_no_lines_and_is_no_slow_beginning(tmp_path: Path) -> None:
    """Else the second of work after it would be drawn over all of the hour."""
    clock = Clock()
    log = lane(tmp_path, clock)
    for _ in range(3600):
        clock.t += 1.0
        log.write_if_changed()
    with log.track("tool"):
        clock.t += 1.0
        log.write_if_changed()
    assert told(tmp_path) == [(100.0, {}), (3700.0, {}), (3701.0, {"tool": 1.0})]


def test_a_process_that_begins_anew_says_so(tmp_path: Path) -> None:
    clock = Clock()
    with lane(tmp_path, clock).track("tool"):
        clock.t += 1.0
    with (tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"t": 1, "torn')
    clock.t += 1.0
    lane(tmp_path, clock)
    lines = [orjson.loads(raw) for raw in (tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl").read_bytes().splitlines()]
    assert [line["started"] for line in lines] == [100.0, 102.0]


def test_a_clock_that_is_set_does_not_change_how_long_things_took(tmp_path: Path) -> None:
    steady, wall = Clock(), Clock()
    log = ActivityLog(tmp_path, "worker-0", "worker", wall, steady)
    with log.track("tool"):
        steady.t += 2.0
        wall.t -= 3600.0
        log.write_if_changed()
    assert told(tmp_path)[-1] == (-3500.0, {"tool": 2.0})


def test_a_disk_that_takes_nothing_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / ACTIVITY_FOLDER).write_text("in the way")
    log = lane(tmp_path, Clock())
    with log.track("tool"):
        log.write_if_changed()


def test_what_was_at_rest_before_anybody_told_of_it_is_no_slow_beginning(tmp_path: Path) -> None:
    """An engine's server takes minutes to start, and nobody tells its lane meanwhile."""
    clock = Clock()
    log = lane(tmp_path, clock)
    clock.t += 90.0
    with log.track("generating"):
        clock.t += 1.0
    log.write_if_changed()
    assert told(tmp_path) == [(100.0, {}), (190.0, {}), (191.0, {"generating": 1.0})]
