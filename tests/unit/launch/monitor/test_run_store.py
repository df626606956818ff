"""If these fail, a person who watches a run misses events, sees some twice, or sees nothing because of one bad line."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from launch.monitor.progress import format_step_line
from launch.monitor.run_state.event_text import describe_event
from launch.monitor.run_state.model import CURVES, MAX_GROUPS
from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import encode_run_view
from launch.run_records.metrics_log import MetricsLog
from protocol.events import EventLog
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.run_directory.cursors import format_cursor, parse_cursor
from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.layout import EVENT_FILES, NoSuchRunError
from protocol.run_directory.run_status import RunStatus
from protocol.run_directory.run_tail import RunTail
from tests.support.fakes.fake_run import MAX_STALENESS, write_fake_run
from tests.support.runs.step_facts import make_step_facts


def _keys(lines: list) -> list[tuple[str, int]]:
    return [(line.value["writer"], line.value["seq"]) for line in lines]


def _all(reader: RunTail, limit: int = 5_000) -> list:
    found = []
    while lines := reader.read(limit):
        found += lines
    return found


def test_a_torn_last_line_is_kept_back_until_it_is_whole(tmp_path: Path):
    path = tmp_path / "events" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"t":1,"kind":"x","writer":"a","seq":0}\n{"t":2,"ki')
    reader = RunTail(tmp_path, EVENT_FILES)
    assert _keys(reader.read()) == [("a", 0)]
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(b'nd":"x","writer":"a","seq":1}\n')
    assert _keys(reader.read()) == [("a", 1)]
    assert reader.statistics().damaged == 0


def test_damaged_lines_are_counted_and_the_rest_is_read(tmp_path: Path):
    folder = tmp_path / "events"
    folder.mkdir()
    lines = [b'{"t":1,"kind":"x","writer":"a","seq":0}', b"\x00\xff not json", b"[1,2]", b"",
             b'{"t":"no time","kind":"x","writer":"a","seq":1}']  # fmt: skip
    (folder / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    reader = RunTail(tmp_path, EVENT_FILES)
    assert _keys(reader.read()) == [("a", 0), ("a", 1)]
    assert reader.statistics().damaged == 3
    assert reader.read() == []


def test_absurd_numbers_cost_only_their_own_line(tmp_path: Path):
    folder = tmp_path / "events"
    folder.mkdir()
    lines = [
        b'{"t":1e308,"kind":"x","writer":"a","seq":0}',
        b'{"t":2,"kind":"learner.step","writer":"a","seq":1e300,"step":18446744073709551615}',
        b'{"t":3,"kind":"episode.turn","trajectory":"x","turn":1e308,"sampled":1e308,"versions":[1e308,1e308]}',
    ]
    (folder / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    encode_run_view(view)
    assert view.reading["damaged"] == 1
    assert view.last_event_at == 3


def test_a_chunk_of_only_damaged_lines_is_not_taken_for_the_end(tmp_path: Path):
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"not json\n" * 3 + b'{"t":1,"kind":"x","writer":"a","seq":0}\n')
    reader = RunTail(tmp_path, EVENT_FILES)
    assert (reader.read(3), reader.at_end) == ([], False)
    assert (_keys(reader.read(3)), reader.at_end) == ([("a", 0)], True)


def test_events_that_a_process_could_not_write_are_counted_and_logged(tmp_path: Path):
    """Without this, a person takes what the page shows for everything that happened."""
    folder = tmp_path / "events"
    folder.mkdir()
    line = b'{"t":%d,"kind":"events.dropped","node":"n","writer":"buffer","seq":%d,"events":%d}\n'
    (folder / "buffer.jsonl").write_bytes(line % (1, 7, 4) + line % (2, 9, 1))
    store = RunStore(tmp_path)
    store.catch_up()
    assert store.state.totals.lost_events == 5
    logged = [(line.level, line.text) for line in store.state.log]
    assert logged[0] == ("warn", "buffer could not write 4 events: a full disk?")


@pytest.mark.parametrize("how", ["shrunk", "replaced"])
def test_a_rotated_file_is_read_from_its_start(tmp_path: Path, how: str):
    folder = tmp_path / "events"
    folder.mkdir()
    path = folder / "a.jsonl"
    path.write_bytes(b'{"t":1,"kind":"x","writer":"a","seq":0}\n{"t":2,"kind":"x","writer":"a","seq":1}\n')
    reader = RunTail(tmp_path, EVENT_FILES)
    assert len(reader.read()) == 2
    fresh = b'{"t":3,"kind":"x","writer":"a","seq":2}\n'
    if how == "shrunk":
        path.write_bytes(fresh)
    else:
        other = folder / "a.new"
        other.write_bytes(fresh * 9)
        other.replace(path)
    assert _keys(reader.read())[0] == ("a", 2)
    assert reader.statistics().rotated == 1


def test_a_reader_cut_off_fifty_times_misses_nothing_and_repeats_nothing(tmp_path: Path):
    write_fake_run(tmp_path, steps=4)
    expected = sorted(_keys(_all(RunTail(tmp_path, EVENT_FILES))))
    rng, seen, cursor = random.Random(1), [], ""
    for _ in range(50):
        reader = RunTail(tmp_path, EVENT_FILES, parse_cursor(cursor))
        seen += _keys(reader.read(rng.randint(1, len(expected) // 40)))
        cursor = format_cursor(reader.cursor)
    seen += _keys(_all(RunTail(tmp_path, EVENT_FILES, parse_cursor(cursor))))
    assert sorted(seen) == expected
    assert len(set(seen)) == len(seen)


def test_lines_that_arrive_in_pieces_between_reads_all_come_through(tmp_path: Path):
    source, copy = tmp_path / "whole", tmp_path / "growing"
    write_fake_run(source, steps=2)
    data = {path.name: path.read_bytes() for path in (source / "events").glob("*.jsonl")}
    (copy / "events").mkdir(parents=True)
    reader, rng, seen = RunTail(copy, EVENT_FILES), random.Random(2), []
    while any(data.values()):
        name = rng.choice([name for name, rest in data.items() if rest])
        size = rng.randint(1, 4_000)
        with (copy / "events" / name).open("ab") as file:
            file.write(data[name][:size])
        data[name] = data[name][size:]
        seen += _keys(reader.read())
    assert sorted(seen) == sorted(_keys(_all(RunTail(source, EVENT_FILES))))


def test_an_endless_line_does_not_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("protocol.run_directory.file_tail.MAX_LINE_BYTES", 1_000)
    for name in ("MIN_CHUNK_BYTES", "MAX_CHUNK_BYTES"):
        monkeypatch.setattr(f"protocol.run_directory.file_tail.{name}", 600)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 5_000 + b'\n{"t":1}\n')
    lines = [line.raw for line in FileTail(path).iter_lines()]
    assert lines[-1] == b'{"t":1}'
    assert max(map(len, lines)) < 1_000


@pytest.mark.parametrize("text", ["a", "a:b", "a:-1", ":x", "a:1,b", "a:١"])
def test_a_foreign_cursor_is_refused(text: str):
    with pytest.raises(ValueError, match="source:offset"):
        parse_cursor(text)


def test_a_cursor_survives_odd_names():
    cursor = {"events/a,b:c d": 12, "events/é": 0}
    assert parse_cursor(format_cursor(cursor)) == cursor
    assert format_cursor(cursor).isascii()


def test_a_finished_run_is_shown_with_all_its_totals(tmp_path: Path):
    run = write_fake_run(tmp_path / "demo", steps=5)
    store = RunStore(tmp_path / "demo")
    store.catch_up()
    view = store.view()
    assert (view.status, view.phase) == (RunStatus.FINISHED, "shutdown")
    assert (view.step, view.run.steps, view.run.max_staleness) == (5, 5, MAX_STALENESS)
    assert view.tokens.trained == run.trained_tokens
    assert view.tokens.masked == run.masked_tokens
    assert view.totals.acknowledged == run.counts["acknowledged"]
    assert view.totals.dropped == run.dropped
    assert view.totals.trained == run.counts["trained"]
    assert view.staleness_histogram == run.staleness
    assert view.running_count == 0
    assert [found.name for found in view.evaluations] == ["before", "after"]
    assert view.engines[0].version == "1.5"
    assert view.engines[0].pause_ms_max == pytest.approx(max(run.pauses), abs=0.1)
    assert orjson.loads(encode_run_view(store.view()))["run"]["id"] == "demo"


def test_a_live_run_is_shown_with_its_running_sessions(tmp_path: Path):
    write_fake_run(tmp_path, steps=3, finished=False)
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    assert (view.status, view.phase) == (RunStatus.RUNNING, "training")
    assert view.running_count == 6
    assert all(session.turn > 0 and session.command for session in view.running)
    assert view.groups[0].outcome == "open"


def test_the_learners_turns_are_counted_separately_from_pauses(tmp_path: Path):
    """A person sees that rollout stands still, for whom, and for how much of the time."""
    driver = [{"t": 100, "kind": "run.phase", "phase": "training"}]
    engine = [
        {"t": 110, "kind": "engine.offloaded"},
        {
            "t": 120,
            "kind": "engine.onloaded",
            "version": 5,
            "new": True,
            "offloaded_s": 10.0,
            "load_ms": 9.0,
            "why": "",
        },
        {"t": 140, "kind": "engine.offloaded"},
    ]
    (tmp_path / "events").mkdir()
    for writer, lines in (("driver-1", driver), ("engine-0", engine)):
        events = [{"writer": writer, "seq": seq, "engine": writer} | line for seq, line in enumerate(lines)]
        (tmp_path / "events" / f"{writer}.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in events))
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    (found,) = view.engines
    assert (found.state, found.loads, found.offloaded_s, found.pause_ms, found.pause_ms_max) == (
        "offloaded",
        1,
        10.0,
        None,
        0.0,
    )
    assert view.blocked_share == 0.25
    assert "offloaded 25.0 % of the time" in format_step_line(view)
    assert "after 10.0 s offloaded" in view.log[-1].text


def test_two_readers_at_different_paces_come_to_the_same_state(tmp_path: Path):
    write_fake_run(tmp_path, steps=3)
    fast, slow = RunStore(tmp_path), RunStore(tmp_path)
    fast.catch_up()
    while slow.poll(7):
        pass
    assert encode_run_view(slow.view()) == encode_run_view(fast.view())


def test_steps_that_are_taken_again_replace_the_first_ones(tmp_path: Path):
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3):
        log.append_step(make_step_facts(step, rewards=(0.1,)), {"trained_tokens": 10.0})
    log.rewind(1)
    log.append_step(make_step_facts(2, rewards=(0.9,)), {"trained_tokens": 10.0})
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    assert view.curves["step"] == [1, 2]
    assert view.curves["reward_mean"] == [0.1, 0.9]
    assert view.tokens.trained == 20
    assert (view.totals.trained, view.totals.dropped, view.staleness_histogram) == (6, {"all_stale": 2}, [300, 100])
    assert view.totals.rewinds == 1


def test_memory_stays_bounded_and_totals_stay_exact_over_a_long_run(tmp_path: Path):
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        for step in range(1, 20_001):
            file.write(orjson.dumps({"step": step, "t": float(step), "trained_tokens": 3}) + b"\n")
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    assert len(store.state.curve.points) <= 4_096
    assert view.tokens.trained == 60_000
    assert view.curves["step"][-1] == 20_000
    assert len(view.curves["step"]) <= 480


def test_a_step_leaves_only_the_metrics_that_have_a_curve(tmp_path: Path):
    """All 60 metrics of a step take 3.4 KiB, which is 14 MiB in a long run; those with a curve take 1.2 KiB."""
    steps = 500
    metrics = dict.fromkeys((*CURVES, *(f"other_{number}" for number in range(40))), 0.1)
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        for step in range(steps):
            line = {"step": step, **{name: step + value for name, value in metrics.items()}}
            file.write(orjson.dumps(line) + b"\n")
    store = RunStore(tmp_path)
    tracemalloc.start()
    try:
        store.catch_up()
        assert tracemalloc.get_traced_memory()[0] < steps * 2_500
    finally:
        tracemalloc.stop()
    view = store.view()
    assert view.latest["other_39"] == view.latest["loss"] == view.curves["loss"][-1] == steps - 0.9
    assert view.curves["loss"][0] is not None


def store_with(run_dir: Path, events: Sequence[dict[str, object]]) -> RunStore:
    (run_dir / "events").mkdir()
    (run_dir / "events" / "x.jsonl").write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    store = RunStore(run_dir)
    store.catch_up()
    return store


def test_a_dead_workers_sessions_do_not_stay_on_the_page(tmp_path: Path):
    events = [
        {"t": 1, "kind": "episode.started", "trajectory": "train-g000001-s00-a0", "worker": "w0"},
        {"t": 1, "kind": "episode.started", "trajectory": "train-g000001-s01-a0", "worker": "w1"},
        {"t": 2, "kind": "process.died", "what": "run/1/w0", "why": "its process 7 ended"},
        {"t": 2, "kind": "episode.failed", "trajectory": "train-g000001-s00", "reason": "worker_died"},
        {"t": 3, "kind": "episode.failed", "trajectory": "train-g000001-s01", "reason": "engine"},
    ]
    store = store_with(tmp_path, events)
    assert store.view().running == []
    assert [session.status for session in store.view().recent] == ["infra:engine", "infra:worker_died"]
    assert store.view().totals.deaths == 1


def test_episodes_with_signs_of_cheating_and_the_isolation_of_all_are_shown(tmp_path: Path):
    name, other = "train-g000001-s00-a0", "train-g000001-s01-a0"
    events = [
        {"t": 1, "kind": "episode.started", "trajectory": name, "worker": "w0", "task": "build"},
        {"t": 2, "kind": "episode.suspicious", "trajectory": name, "why": ["its code falsified"]},
        {"t": 3, "kind": "episode.finished", "trajectory": name, "reward": 0.0, "isolation": "shared"},
        {"t": 4, "kind": "episode.finished", "trajectory": other, "reward": 1.0, "isolation": "toolchain"},
        {"t": 5, "kind": "episode.finished", "trajectory": "train-g000002-s01-a0", "isolation": ""},
    ]
    view = store_with(tmp_path, events).view()
    assert [(each.trajectory, each.task, each.detail, each.reward) for each in view.suspects] == [
        (name, "build", "its code falsified", 0.0)
    ]
    assert (view.totals.suspicious, view.totals.isolation) == (1, {"shared": 1, "toolchain": 1})


def test_a_lost_node_is_no_longer_counted_and_is_named(tmp_path: Path):
    gone = {"t": 3, "kind": "node.down", "name": "node-1", "address": "10.0.0.2"}
    store = store_with(tmp_path, [*({"t": 1, "kind": "node.up", "name": f"node-{index}"} for index in range(2)), gone])
    assert store.view().nodes == 1
    line = describe_event(gone)
    assert line is not None
    assert (line.level, line.text) == ("bad", "node node-1 (10.0.0.2) is gone")


def test_engines_and_sandboxes_of_a_lost_node_are_no_longer_shown_as_running(tmp_path: Path):
    def events_of(node: int) -> list[dict[str, object]]:
        on = {"t": 1, "node": f"node-{node}"}
        stats = {"kind": "sandbox.counted", "writer": f"worker-{node}-0", "live": 3, "started": 5, "waiting": 1}
        return [{**on, "kind": "engine.started", "engine": f"engine-{node}"}, {**on, **stats}]

    store = store_with(
        tmp_path, [*events_of(0), *events_of(1), {"t": 3, "kind": "node.down", "node": "node-0", "name": "node-1"}]
    )
    assert [engine.state for engine in store.view().engines] == ["serving", "down"]
    counts = store.view().sandboxes
    assert (counts.live, counts.waiting, counts.started) == (3, 1, 10)


def test_images_that_a_run_makes_are_counted_until_its_next_start(tmp_path: Path):
    counts = {"t": 2, "kind": "images.counted", "tasks": 40, "ready": 12, "failed": 1}
    store = store_with(tmp_path, [{"t": 1, "kind": "run.started"}, counts])
    images = store.view().images
    assert str(images) == "images: 12 of 40 ready, 1 failed"
    assert images is not None
    assert images.pending
    assert describe_event(counts) is None, "a gauge, no line of the log"
    EventLog(tmp_path, "driver", "node-0").emit("run.started")
    store.catch_up()
    assert store.view().images is None


def test_a_task_that_is_left_out_is_a_warning_with_its_reason():
    line = describe_event({"t": 1, "kind": "task.unusable", "task": "web", "reason": "step 3/7: RUN make"})
    assert line is not None
    assert (line.level, line.text) == ("warn", "web is left out: step 3/7: RUN make")


@pytest.mark.parametrize(
    ("evaluates", "coming"), [(True, ["training", "evaluation_after", "shutdown"]), (False, ["training", "shutdown"])]
)
def test_only_phases_that_will_come_are_listed(tmp_path: Path, evaluates: bool, coming: list[str]):
    store = store_with(tmp_path, [{"t": 1, "kind": "run.started", "evaluates": evaluates}])
    assert [name for name in store.view().order if name in {"training", "evaluation_after", "shutdown"}] == coming


def test_a_late_trajectory_of_a_forgotten_group_is_counted_without_reviving_the_group(tmp_path: Path):
    opened = [
        {"t": 1, "kind": "group.opened", "group": group, "task": "t", "size": 2} for group in range(MAX_GROUPS + 1)
    ]
    late = {"t": 2, "kind": "trajectory.stored", "group": 0, "sample": 1, "outcome": "appended", "reward": 1.0}
    store = store_with(tmp_path, [*opened, late])
    assert store.view().totals.acknowledged == 1
    assert sorted(store.state.groups) == list(range(1, MAX_GROUPS + 1))


def test_an_episode_that_is_no_longer_needed_does_not_stay_on_the_page(tmp_path: Path):
    name = "train-g000001-s00-a0"
    started = {"t": 1, "kind": "episode.started", "trajectory": name, "worker": "w0"}
    cancelled = {"kind": "episode.cancelled", "trajectory": name}
    store = store_with(tmp_path, [started, cancelled | {"t": 2}, cancelled | {"t": 3}])
    assert store.view().running == []
    assert [session.status for session in store.view().recent] == ["cancelled"]


def test_a_superseded_trajectory_does_not_replace_the_reward_that_counts(tmp_path: Path):
    stored = {"kind": "trajectory.stored", "group": 0, "sample": 0}
    store = store_with(
        tmp_path,
        [
            stored | {"t": 1, "outcome": "appended", "reward": 1.0, "status": "completed"},
            stored | {"t": 2, "outcome": "superseded", "reward": 0.0, "status": "turn_limit"},
        ],
    )
    member = store.state.groups[0].members[0]
    assert (member.reward, member.status) == (1.0, "completed")
    assert (store.view().totals.acknowledged, store.view().totals.superseded) == (2, 1)


@pytest.mark.parametrize(
    ("outcome", "rewards", "dropped"),
    [
        ("ready", [None, 1.0, 0.0, 1.0], {}),
        ("too_few_members", [None, None, 0.0, 1.0], {"too_few_members": 2}),
        ("zero_variance", [None, 1.0, 1.0, 1.0], {"zero_variance": 3}),
    ],
)
def test_a_sample_that_was_given_up_has_no_reward_and_is_not_counted(
    tmp_path: Path, outcome: str, rewards: list[float | None], dropped: dict[str, int]
):
    """An episode's reward stays its own, and the page's accounting is that of the journal."""
    group = {"t": 1, "group": 3, "task": "sum", "size": 4}
    closed = {**group, "kind": "group.closed", "outcome": outcome, "rewards": rewards}
    (tmp_path / "events").mkdir()
    opened = {**group, "kind": "group.opened"}
    (tmp_path / "events" / "buffer.jsonl").write_bytes(b"".join(orjson.dumps(e) + b"\n" for e in (opened, closed)))
    store = RunStore(tmp_path)
    store.catch_up()
    arrived = {sample: reward for sample, reward in enumerate(rewards) if reward is not None}
    (shown,) = store.view().groups
    assert {member.sample: member.reward for member in shown.members} == arrived
    assert store.view().totals.dropped == dropped
    assert store.view().log[-1].text == f"group 3 closed with {len(arrived)} of 4: {outcome.replace('_', ' ')}"


def test_an_empty_run_directory_has_a_view(tmp_path: Path):
    store = RunStore(tmp_path)
    store.catch_up()
    assert store.view().empty
    assert store.view().phase == ""


def test_a_missing_run_directory_is_refused_by_name(tmp_path: Path):
    with pytest.raises(NoSuchRunError, match="no run 'nothing' in "):
        RunStore(tmp_path / "nothing")


def test_reading_changes_nothing(tmp_path: Path):
    write_fake_run(tmp_path, steps=2)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    store = RunStore(tmp_path)
    store.catch_up()
    encode_run_view(store.view())
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("tasks", "progress"), [(108, "over 324 attempts at 108 tasks"), (None, "over 324 attempts")])
def test_an_evaluation_counts_attempts_not_tasks(tasks: int | None, progress: str) -> None:
    event = {"t": 1.0, "kind": "evaluation.finished", "name": "after", "pass_at_1": 0.969, "stderr": 0.01, "n": 324}
    line = describe_event(event if tasks is None else {**event, "tasks": tasks})
    assert line is not None
    assert line.text == f"evaluation after: pass@1 96.9 % ± 1.0 {progress}"


@pytest.mark.parametrize("end", ["evaluation.finished", "evaluation.failed", "evaluation.aborted"])
def test_the_engine_and_sandboxes_of_an_online_evaluation_disappear_when_it_ends(tmp_path: Path, end: str) -> None:
    """Without this, a person looks for an engine and sandboxes that no longer exist."""
    driver, engine, worker = (
        EventLog(tmp_path, name, "node-0") for name in ("driver-1", EVALUATION_ENGINE, EVALUATION_WORKER)
    )
    driver.emit("run.started", run="r", steps=9)
    driver.emit("evaluation.started", name="step-000004", step=4, version=4)
    engine.emit("engine.started", engine=EVALUATION_ENGINE, version=4)
    worker.emit("sandbox.counted", live=3, started=5, waiting=1)
    driver.emit("evaluation.progress", name="step-000004", done=1, total=8, passed=1)
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    assert ([each.name for each in view.engines], view.sandboxes.live) == ([EVALUATION_ENGINE], 3)
    assert [*view.evaluating] == ["step-000004"]
    driver.emit(end, name="step-000004", step=4, version=4, why="w", pass_at_1=0.5, n=8)
    store.catch_up()
    view = store.view()
    assert (view.engines, view.sandboxes.live, view.sandboxes.started) == ([], 0, 5)
    assert view.evaluating == {}
    assert [(each.step, each.pass_at_1) for each in view.evaluations] == (
        [(4, 0.5)] if end == "evaluation.finished" else []
    )
