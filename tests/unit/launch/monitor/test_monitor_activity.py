"""If these fail, the timeline shows that somebody waited where they worked."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import orjson
import pytest

from launch.monitor.archive.activity import WHOLE_BYTES, read_activity
from protocol.activity import ACTIVITY_FOLDER, ActivityLog
from tests.support.fakes.fake_clock import FakeClock


def test_time_slots_have_the_mean_number_of_concurrent_activities(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    log = ActivityLog(tmp_path, "worker-0", "worker", clock, clock)
    with log.track("generating"), log.track("generating"):
        clock.now += 10.0
    log.write_if_changed()
    with log.track("tool"):
        clock.now += 5.0
    log.write_if_changed()
    found = read_activity(tmp_path, None, None, 3)
    assert (found.since, found.until, found.slot_s) == (1000.0, 1015.0, 5.0)
    (track,) = found.tracks
    assert (track.name, track.kind) == ("worker-0", "worker")
    assert track.states == {"generating": [2.0, 2.0, 0.0], "tool": [0.0, 0.0, 1.0]}


def test_a_part_of_the_timeline_agrees_with_the_whole(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    log = ActivityLog(tmp_path, "learner", "learner", clock, clock)
    for second in range(100):
        with log.track("training" if second % 2 else "waiting"):
            clock.now += 1.0
        log.write_if_changed()
    whole, part = read_activity(tmp_path, None, None, 100), read_activity(tmp_path, 1040.0, 1050.0, 10)
    for state in ("training", "waiting"):
        assert part.tracks[0].states[state] == pytest.approx(whole.tracks[0].states[state][40:50])
    assert read_activity(tmp_path, 5000.0, 6000.0, 10).tracks[0].states == {}


def test_a_restarted_process_continues_its_track(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    for _ in range(2):
        log = ActivityLog(tmp_path, "engine-0", "engine", clock, clock)
        with log.track("generating"):
            clock.now += 4.0
        log.write_if_changed()
        clock.now += 4.0
    (track,) = read_activity(tmp_path, None, None, 3).tracks
    assert track.states == {"generating": [1.0, 0.0, 1.0]}


def test_a_long_track_is_read_in_part_with_correct_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.monitor.archive.activity.WHOLE_BYTES", 10_000)
    clock = FakeClock(1000.0)
    log = ActivityLog(tmp_path, "worker-0", "worker", clock, clock)
    for _ in range(3_000):
        with log.track("tool"):
            clock.now += 0.25
        with log.track("generating"):
            clock.now += 0.75
        log.write_if_changed()
    (track,) = read_activity(tmp_path, None, None, 20).tracks
    assert track.states["tool"] == pytest.approx([0.25] * 20, abs=0.01)
    assert track.states["generating"] == pytest.approx([0.75] * 20, abs=0.01)
    (near,) = read_activity(tmp_path, 2000.0, 2010.0, 10).tracks
    assert near.states["tool"] == pytest.approx([0.25] * 10, abs=0.05)


def test_tracks_are_in_an_order_that_a_person_expects(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    for name, kind in (("worker-0", "worker"), ("learner", "learner"), ("engine-1", "engine"), ("engine-0", "engine")):
        ActivityLog(tmp_path, name, kind, clock, clock)
    assert [track.name for track in read_activity(tmp_path, 0.0, 2000.0, 2).tracks] == [
        "learner", "engine-0", "engine-1", "worker-0",
    ]  # fmt: skip


def test_damaged_lines_and_files_are_passed_over(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    log = ActivityLog(tmp_path, "worker-0", "worker", clock, clock)
    with log.track("tool"):
        clock.now += 2.0
    log.write_if_changed()
    path = tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl"
    first, last = path.read_bytes().splitlines()
    damaged = orjson.dumps({"t": "x"})
    path.write_bytes(b"\n".join([b"\xff\xfe", first, damaged, last, b'{"t": 1']))
    (tmp_path / ACTIVITY_FOLDER / "other.jsonl").write_bytes(b"nothing\n")
    (tmp_path / ACTIVITY_FOLDER / "empty.jsonl").write_bytes(b"")
    found = read_activity(tmp_path, 1000.0, 1002.0, 2)
    assert [track.name for track in found.tracks if track.states] == ["worker-0"]
    assert read_activity(tmp_path / "none", None, None, 2).tracks == []


def test_reading_hours_of_activity_holds_numbers_only(tmp_path: Path) -> None:
    """All lines of a process at once take 5 MiB, and more with each hour: a monitor's memory would rise by it."""
    states = ("acquiring", "generating", "grading", "tool", "waiting")
    path = tmp_path / ACTIVITY_FOLDER / "worker-0.jsonl"
    path.parent.mkdir()
    line = {"kind": "worker", "started": 0.0}
    lines = [orjson.dumps({"t": float(t), **line, "seconds": dict.fromkeys(states, t / 10)}) for t in range(7_000)]
    path.write_bytes(b"\n".join([*lines, b""]))
    assert WHOLE_BYTES * 3 // 4 < path.stat().st_size < WHOLE_BYTES
    tracemalloc.start()
    try:
        (track,) = read_activity(tmp_path, None, None, 10).tracks
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert track.states == {state: [0.1] * 10 for state in states}
