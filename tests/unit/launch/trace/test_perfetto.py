"""If these fail, a timeline cannot be opened, or shows what was not so."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.trace.perfetto import build_trace_file
from launch.trace.run_timeline import RunTimeline, read_run_timeline
from launch.trace.trace_events import (
    TimeWindow,
    TraceCounter,
    TraceInstant,
    TraceSpan,
    TraceTrack,
    assign_tracks,
    nest_spans,
)
from protocol.cli.exit_codes import EXIT_USER
from protocol.events import EventLog
from tests.support.commands import call_command
from tests.support.fakes.fake_run import write_fake_run

TRACK = TraceTrack("process", "track")


def check_format(file: dict[str, Any]) -> None:
    """The rules of the Trace Event Format that its readers hold a file to."""
    events = file["traceEvents"]
    assert json.loads(json.dumps(file)) == file
    assert file["displayTimeUnit"] in {"ms", "ns"}
    named: dict[str, set[tuple[int, int]]] = defaultdict(set)
    open_spans: dict[tuple[int, int], list[int]] = defaultdict(list)
    at = 0
    for event in events:
        assert event["ph"] in {"M", "X", "i", "C"}
        assert isinstance(event["name"], str)
        assert event["name"]
        for key in ("ts", "pid", "tid"):
            assert isinstance(event[key], int)
            assert event[key] >= 0
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
            named[event["name"]].add(place)
            continue
        assert event["ts"] >= at, "they are in the order of time"
        at = event["ts"]
        assert place in named["thread_name"], "a track has a name"
        assert (event["pid"], 0) in named["process_name"]
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "X":
            assert isinstance(event["dur"], int)
            assert event["dur"] >= 0
            stack = open_spans[place]
            while stack and stack[-1] <= event["ts"]:
                stack.pop()
            assert not stack or event["ts"] + event["dur"] <= stack[-1], "spans of a track nest"
            stack.append(event["ts"] + event["dur"])


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "fake"
    write_fake_run(path, steps=4)
    return path


def whole(timeline: RunTimeline) -> dict[str, Any]:
    window = TimeWindow(timeline.begin_s or 0.0, timeline.end_s)
    return build_trace_file(window.clip(timeline.trace_events()), window.begin_s, {})


def test_the_timeline_of_a_run_follows_the_trace_format(run_dir: Path) -> None:
    check_format(whole(read_run_timeline(run_dir)))


def test_engines_workers_and_the_learner_have_tracks_with_their_activities(run_dir: Path) -> None:
    pieces = read_run_timeline(run_dir).trace_events()
    names = defaultdict(set)
    for piece in pieces:
        if isinstance(piece, TraceSpan):
            names[piece.track.process].add(piece.name)
    assert {"up", "paused", "load"} <= names["engine-0"]
    assert {"generate", "bash", "grade"} <= names["worker-0"]
    assert {"waiting for a batch", "step 1", "step 4"} <= names["learner"]
    assert {"warm_start", "training"} <= names["run"]


def test_the_parts_of_an_episode_lie_within_it_and_add_up(tmp_path: Path) -> None:
    log, clock = clocked(tmp_path)
    worker = "train-g000000-s00-a0"
    for at, kind, fields in (
        (10.0, "episode.started", {"trajectory": worker, "task": "t"}),
        (11.0, "sandbox.started", {"trajectory": "train-g000000-s00"}),
        (13.0, "episode.turn", {"trajectory": worker, "turn": 0, "sampled": 7, "ms": 1500.0}),
        (13.0, "episode.tool", {"trajectory": worker, "tool": "shell"}),
        (16.0, "episode.turn", {"trajectory": worker, "turn": 1, "sampled": 3, "ms": 1000.0}),
        (18.0, "episode.finished", {"trajectory": worker, "status": "completed", "reward": 1.0, "ms": {"grade": 2000}}),
    ):
        clock[0] = at
        log.emit(kind, **fields)
    spans = [each for each in read_run_timeline(tmp_path).trace_events() if isinstance(each, TraceSpan)]
    found = [(each.name, each.begin_s, each.end_s) for each in spans]
    assert found == [
        (worker, 10.0, 18.0),
        ("acquire", 10.0, 11.0),
        ("generate", 11.5, 13.0),
        ("shell", 13.0, 15.0),
        ("generate", 15.0, 16.0),
        ("grade", 16.0, 18.0),
    ]
    assert spans[0].args == {"task": "t", "status": "completed", "reward": 1.0}


def clocked(run_dir: Path, writer: str = "worker-0-0") -> tuple[EventLog, list[float]]:
    """A log of a worker whose clock is the test's."""
    clock = [0.0]
    return EventLog(run_dir, writer, "node-0", lambda: clock[0], steady=None), clock


def test_an_episode_of_a_dead_worker_ends_at_its_last_event(tmp_path: Path) -> None:
    log, clock = clocked(tmp_path)
    clock[0] = 10.0
    log.emit("episode.started", trajectory="train-g000000-s00-a0", task="t")
    clock[0] = 12.0
    log.emit("episode.turn", trajectory="train-g000000-s00-a0", turn=0, sampled=1, ms=1000.0)
    clock[0] = 20.0
    log.emit("worker.started", worker="worker-0-0", incarnation="2")
    log.emit("episode.started", trajectory="train-g000000-s00-a1", task="t")
    clock[0] = 21.0
    log.emit("episode.cancelled", trajectory="train-g000000-s00-a1")
    ended = {
        each.name: (each.end_s, each.args["status"])
        for each in read_run_timeline(tmp_path).trace_events()
        if isinstance(each, TraceSpan) and "status" in each.args
    }
    assert ended == {"train-g000000-s00-a0": (12.0, "unfinished"), "train-g000000-s00-a1": (21.0, "cancelled")}
    check_format(whole(read_run_timeline(tmp_path)))


def test_running_sums_of_activity_become_concurrency_levels(tmp_path: Path) -> None:
    """A timeline: three requests were decoded at once, and then one for half of the time."""
    log, clock = clocked(tmp_path)
    log.emit("node.up")
    clock[0] = 30.0
    log.emit("node.up")
    (tmp_path / "activity").mkdir()
    lines = [(10.0, {}), (12.0, {"generating": 6.0}), (14.0, {"generating": 7.0})]
    text = "".join(json.dumps({"t": t, "kind": "engine", "started": 0, "seconds": sums}) + "\n" for t, sums in lines)
    (tmp_path / "activity" / "engine-0.jsonl").write_text(text)
    levels = [each for each in read_run_timeline(tmp_path).trace_events() if isinstance(each, TraceCounter)]
    assert [(each.track.process, each.at_s, each.values) for each in levels] == [
        ("engine-0", 10.0, {"generating": 3.0}),
        ("engine-0", 12.0, {"generating": 0.5}),
    ]
    check_format(whole(read_run_timeline(tmp_path)))


seconds = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 3))
spans = st.lists(
    st.builds(
        lambda name, begin, length: TraceSpan(TRACK, name, begin, begin + length),
        st.sampled_from("abc"),
        seconds,
        seconds,
    ),
    max_size=20,
)


@given(spans)
def test_spans_nest_even_if_clocks_disagree(given_spans: list[TraceSpan]) -> None:
    """Without this, a reader draws them over each other, or refuses the file.  No span is lost or ends elsewhere."""
    found = nest_spans(given_spans)
    assert sorted((each.name, each.end_s) for each in found) == sorted((each.name, each.end_s) for each in given_spans)
    check_format(build_trace_file(found, 0.0, {}))


@given(spans)
def test_concurrent_spans_are_on_separate_tracks(given_spans: list[TraceSpan]) -> None:
    places = assign_tracks(given_spans)
    for place in set(places):
        own = sorted(
            (span.begin_s, span.end_s) for span, where in zip(given_spans, places, strict=True) if where == place
        )
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(own))


def test_a_window_keeps_overlapping_spans_and_the_levels_at_its_start() -> None:
    cut = TimeWindow(10.0, 20.0).clip(
        [
            TraceSpan(TRACK, "before", 0.0, 9.0),
            TraceSpan(TRACK, "into", 5.0, 12.0),
            TraceSpan(TRACK, "around", 0.0, 30.0),
            TraceInstant(TRACK, "early", 9.0),
            TraceInstant(TRACK, "in", 15.0),
            TraceCounter(TRACK, 1.0, {"n": 1.0}),
            TraceCounter(TRACK, 8.0, {"n": 2.0}),
            TraceCounter(TRACK, 19.0, {"n": 3.0}),
        ]
    )
    assert cut == [
        TraceCounter(TRACK, 10.0, {"n": 2.0}),
        TraceSpan(TRACK, "into", 10.0, 12.0),
        TraceSpan(TRACK, "around", 10.0, 20.0),
        TraceInstant(TRACK, "in", 15.0),
        TraceCounter(TRACK, 19.0, {"n": 3.0}),
    ]


def test_the_command_writes_a_window_of_the_run(
    run_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_command(capfd, "launch.trace", run_dir, "--steps", "2-3", "--output", tmp_path / "t.json", "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    file = json.loads((tmp_path / "t.json").read_text())
    check_format(file)
    steps = [event["name"] for event in file["traceEvents"] if event["name"].startswith("step ")]
    assert {"step 2", "step 3"} <= set(steps)
    assert "step 4" not in steps
    assert max(event["ts"] + event.get("dur", 0) for event in file["traceEvents"]) <= output["seconds"] * 1e6 + 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--start-s", "9e9"], "the window is empty"),
        (["--steps", "7"], "the run has taken the steps 1 to 4"),
        (["--steps", "two"], "argument --steps: write a step or a range, 4 or 4-6, not 'two'"),
        (["--steps", "1", "--end-s", "5"], "leave one of them out"),
        (["--output", "/nowhere/t.json"], "cannot write /nowhere/t.json"),
    ],
)
def test_invalid_arguments_are_a_user_error(
    run_dir: Path, arguments: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_command(capfd, "launch.trace", run_dir, *arguments, "--json")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == EXIT_USER
    assert why in done.stderr


def test_a_folder_without_a_run_is_refused_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call_command(capfd, "launch.trace", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_USER, 1)
    assert f"no run '{tmp_path.name}' in" in done.stderr
