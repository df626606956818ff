"""If these fail, a terminal cannot be watched or replayed, or recording it hurts the episode."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from protocol.run_directory import terminal_recordings
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label


def _lines(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_recording_is_asciicast_v2(tmp_path: Path):
    ticks = count()
    with CastWriter.open(
        tmp_path / "t" / "a.cast", 100, 30, "sort", clock=lambda: next(ticks), now=lambda: 7.0
    ) as cast:
        cast.record_command("ls\ncat x")
        cast.record_output("one\ntwo\r\n")
        cast.record_note("passed")
    header, *events = _lines(tmp_path / "t" / "a.cast")
    assert header == {"version": 2, "width": 100, "height": 30, "timestamp": 7, "title": "sort"}
    assert [event[1] for event in events] == ["o", "o", "o"]
    assert [event[0] for event in events] == [1, 2, 3]
    assert "ls\r\n" in events[0][2]
    assert events[1][2] == "one\r\ntwo\r\n"
    assert "── passed" in events[2][2]


def test_each_event_can_be_read_while_the_episode_runs(tmp_path: Path):
    path = tmp_path / "a.cast"
    cast = CastWriter.open(path)
    for number in range(1, 4):
        cast.record_output(f"{number}\n")
        assert len(_lines(path)) == number + 1
    cast.close()


def test_a_note_after_an_unfinished_line_starts_a_new_one(tmp_path: Path):
    with CastWriter.open(tmp_path / "a.cast") as cast:
        cast.record_output("no newline")
        cast.record_command("next")
    assert _lines(tmp_path / "a.cast")[-1][2].startswith("\r\n")


def test_a_huge_output_keeps_head_and_tail_and_is_counted(tmp_path: Path):
    with CastWriter.open(tmp_path / "a.cast") as cast:
        cast.record_output("H" + "x" * 100_000 + "T")
    data = _lines(tmp_path / "a.cast")[-1][2]
    assert len(data) < terminal_recordings.MAX_CAST_EVENT_CHARS + 200
    assert data.startswith("H")
    assert data.endswith("T")
    assert cast.cut_chars == 100_002 - terminal_recordings.MAX_CAST_EVENT_CHARS


def test_a_full_recording_says_so_once_and_still_takes_the_verdict(tmp_path: Path):
    with CastWriter.open(tmp_path / "a.cast", max_bytes=3_000) as cast:
        for _ in range(400):
            cast.record_output("x" * 100)
        cast.record_note("reward 1")
    text = (tmp_path / "a.cast").read_text()
    assert text.count("recording is full") == 1
    assert "reward 1" in text
    assert cast.dropped_events > 300
    assert len(text) < 4_000


def test_events_that_cannot_be_written_are_counted_and_raise_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("")
    cast = CastWriter.open(tmp_path / "file" / "a.cast")
    cast.record_output("x")
    cast.record_note("y")
    cast.close()
    cast.record_output("after close")
    assert cast.dropped_events == 4


def test_text_with_invalid_unicode_is_recorded(tmp_path: Path):
    with CastWriter.open(tmp_path / "a.cast", title="\udc80") as cast:
        cast.record_output("bad \udcff byte\n")
    assert _lines(tmp_path / "a.cast")[-1][2] == "bad ? byte\r\n"


def test_an_agents_command_cannot_forge_the_prompt(tmp_path: Path):
    with CastWriter.open(tmp_path / "a.cast") as cast:
        cast.record_command("echo \x1b[2J\x07")
    assert "\x1b[2J" not in _lines(tmp_path / "a.cast")[-1][2]


def test_a_marker_is_not_recorded_as_output(tmp_path: Path) -> None:
    """Otherwise a terminal would display it."""
    path = tmp_path / "a.cast"
    with CastWriter.open(path, clock=iter([0.0, 1.5, 2.0]).__next__) as cast:
        cast.record_marker(turn_marker_label(3))
        cast.record_output("x")
    assert [json.loads(line) for line in path.read_text().splitlines()[1:]] == [[1.5, "m", "turn 3"], [2.0, "o", "x"]]
