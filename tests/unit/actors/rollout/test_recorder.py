"""If these fail, a person watching a run sees another episode than the one that was trained, or none."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from actors.rollout.recorder import EpisodeTelemetry, TerminalRecorder
from actors.rollout.terminal import EpisodeGrade
from protocol.events import EventLog
from protocol.run_directory.page_pictures import PictureWriter, list_pictures, pictures_path
from protocol.trajectory import Reward, TestResult, Trajectory
from sandbox.tasks.task import Task
from tests.support.pages.page_pictures import make_picture
from tests.support.runs.trajectories import make_trajectory

TASK = Task("task-0", "Count the lines.", family="count")


def record(run_dir: Path, trajectory: Trajectory) -> None:
    """One short episode."""
    recorder = EpisodeTelemetry(EventLog(run_dir, "worker-0", "node-0"), run_dir, trajectory.request, TASK, "worker-0")
    recorder.on_turn(0, "I count.", 5, (3, 4), 70.0)
    recorder.on_call("shell_exec", "wc -l\x1b[2J input.txt")
    recorder.on_result("12 input.txt\n")
    recorder.on_grade(
        EpisodeGrade((TestResult("one", True), TestResult("two", False)), 0.5, False, 3.0),
        Reward(0.5, {"pass_ratio": 0.5}),
    )
    recorder.record_finished(trajectory)
    recorder.close()


def events(run_dir: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in (run_dir / "events" / "worker-0.jsonl").read_bytes().splitlines()]


def shown(cast: Path) -> str:
    _, *lines = map(orjson.loads, cast.read_bytes().splitlines())
    return "".join(text for _, _, text in lines)


def test_each_attempt_at_a_sample_has_separate_events_and_a_separate_recording(tmp_path: Path) -> None:
    first, again = make_trajectory(reward=1.0), make_trajectory(reward=1.0, attempt=1)
    record(tmp_path, first)
    record(tmp_path, again)
    names = [f"{first.request.trajectory_id}-a{attempt}" for attempt in (0, 1)]
    assert sorted(path.stem for path in (tmp_path / "terminals").iterdir()) == names
    recorded = [(event["kind"], event["trajectory"]) for event in events(tmp_path)]
    kinds = ["episode.started", "episode.turn", "episode.tool", "episode.finished"]
    assert recorded == [(kind, name) for name in names for kind in kinds]


def test_the_recording_shows_texts_commands_outputs_and_grades(tmp_path: Path) -> None:
    record(tmp_path, make_trajectory())
    (cast,) = (tmp_path / "terminals").iterdir()
    text = shown(cast)
    parts = ["I count.", "wc -l·[2J input.txt", "12 input.txt", "1 of 2 hidden tests passed, reward 0.5"]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_each_turn_has_a_marker_in_the_recording(tmp_path: Path) -> None:
    """Players show its marker, and it stands before what the model said."""
    record(tmp_path, make_trajectory())
    (cast,) = (tmp_path / "terminals").iterdir()
    codes = [(code, text) for _, code, text in map(orjson.loads, cast.read_bytes().splitlines()[1:])]
    assert codes[0] == ("m", "turn 0")
    assert "I count." in codes[1][1]


def test_the_last_event_has_the_trajectorys_own_figures(tmp_path: Path) -> None:
    trajectory = make_trajectory(reward=1.0, sampled=7)
    record(tmp_path, trajectory)
    finished = events(tmp_path)[-1]
    assert (finished["status"], finished["reward"], finished["sampled"], finished["turns"]) == ("completed", 1.0, 7, 1)
    assert finished["ms"] == {"total": 12.5}
    assert finished["parts"] == {"outcome": 1.0}


def test_an_unwritable_disk_loses_the_recording_but_not_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "terminals").write_text("in the way")
    record(tmp_path, make_trajectory())
    assert len(events(tmp_path)) == 4


def test_a_suspicious_pass_is_reported_with_the_reason(tmp_path: Path) -> None:
    request = make_trajectory().request
    recorder = EpisodeTelemetry(EventLog(tmp_path, "worker-0", "node-0"), tmp_path, request, TASK, "worker-0")
    why = "call 1 touched the tests' folder: ls /tests"
    recorder.on_grade(EpisodeGrade((TestResult("one", True),), 1.0, True, 3.0, (why,), isolation="shared"), Reward(1.0))
    recorder.record_finished(make_trajectory())
    recorder.close()
    assert [event["isolation"] for event in events(tmp_path) if event["kind"] == "episode.finished"] == ["shared"]
    assert [event["why"] for event in events(tmp_path) if event["kind"] == "episode.suspicious"] == [[why]]
    (cast,) = (tmp_path / "terminals").iterdir()
    assert why in shown(cast)


def test_output_is_recorded_as_it_arrives_and_long_output_keeps_both_ends(tmp_path: Path) -> None:
    request = make_trajectory().request
    recorder = EpisodeTelemetry(EventLog(tmp_path, "worker-0", "node-0"), tmp_path, request, TASK, "worker-0")
    (cast,) = (tmp_path / "terminals").iterdir()
    recorder.on_call("shell_exec", "make")
    recorder.on_output("compiling\n")
    assert shown(cast).endswith("compiling\r\n"), "before the command has ended"
    recorder.on_result("compiling\n")
    assert shown(cast).count("compiling") == 1
    noise = "".join(f"{number:06}\n" for number in range(5000))
    recorder.on_call("shell_exec", "seq")
    for start in range(0, len(noise), 999):
        recorder.on_output(noise[start : start + 999])
    recorder.on_result(noise)
    recorder.on_call("shell_exec", "true")
    recorder.on_result("(no output)")
    recorder.close()
    text = shown(cast)
    assert "000000\r\n" in text
    assert "004999\r\n" in text
    assert "003000" not in text
    assert "19,000 more characters" in text
    assert text.endswith("(no output)")


def test_a_recording_stops_at_its_size_limit_and_says_so(tmp_path: Path) -> None:
    """A thousand attempts of an evaluation would fill the disk."""
    file = tmp_path / "a.0.cast"
    recorder = TerminalRecorder(file, "title", PictureWriter(tmp_path / "x.jpegs", 0), max_bytes=20_000)
    for call in range(50):
        recorder.on_call("shell_exec", f"cat {call}")
        recorder.on_result("x" * 5_000)
    recorder.close()
    assert file.stat().st_size < 2 * 20_000
    assert "this recording is full" in shown(file)


def test_what_the_browser_shows_is_kept_with_its_turn_and_removed_episodes_are_told(tmp_path: Path) -> None:
    request, log = make_trajectory().request, EventLog(tmp_path, "worker-0", "node-0")
    old = pictures_path(tmp_path, "old")
    old.parent.mkdir()
    old.write_bytes(bytes(1000))
    recorder = EpisodeTelemetry(log, tmp_path, request, TASK, "worker-0", picture_budget_bytes=1 << 20)
    recorder.on_picture(make_picture("start"))
    for turn in range(2):
        recorder.on_turn(turn, "I look.", 5, (3, 4), 70.0)
        recorder.on_picture(make_picture(f"page {turn}"))
    recorder.on_picture(b"no picture")
    recorder.close()
    assert [picture.turn for picture in list_pictures(pictures_path(tmp_path, request.attempt_id))] == [-1, 0, 1]
    assert [event["episodes"] for event in events(tmp_path) if event["kind"] == "pictures.removed"] == [1]
    assert "1 pictures of pages are left out" in shown(tmp_path / "terminals" / f"{request.attempt_id}.cast")
