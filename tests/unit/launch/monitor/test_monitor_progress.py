"""If these fail, the terminal that started a run is silent, or prints a step twice."""

from __future__ import annotations

import asyncio
import io
import itertools
import time
from pathlib import Path

import orjson
import pyte
import pytest
from rich.console import Console

from launch.monitor.progress import ProgressLog, format_step_line, render_panel, show_progress
from launch.monitor.run_state.store import RunStore
from protocol.events import EventLog
from tests.support.fakes.fake_run import write_fake_run


def panel_of(store: RunStore) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(render_panel(store.view()))
    return out.getvalue()


async def test_without_a_terminal_each_fact_is_one_line(tmp_path: Path):
    write_fake_run(tmp_path, steps=3)
    out = io.StringIO()
    async with asyncio.timeout(20):
        await show_progress(RunStore(tmp_path), Console(file=out))
    lines = out.getvalue().splitlines()
    assert [line.split(" ")[1] for line in lines if line.startswith("step ")] == ["1/3", "2/3", "3/3"]
    assert lines[-1].startswith("finished")
    assert any(line.startswith("evaluation after: pass@1") for line in lines)


def test_a_resumed_run_prints_only_new_lines(tmp_path: Path):
    """Told again, the last lines of the start before look as if steps were lost, or made twice."""
    write_fake_run(tmp_path, steps=3, finished=False)
    store, progress = RunStore(tmp_path), ProgressLog()
    log = EventLog(tmp_path, "driver-2", "node-0")
    log.emit("run.started", run="demo", recipe="demo", mode="async", steps=5, url="http://127.0.0.1:1/")
    log.emit("run.phase", phase="training", detail="")
    store.catch_up()
    assert progress.new_lines(store.view()) == ["live monitor: http://127.0.0.1:1/", "training"]
    with (tmp_path / "metrics.jsonl").open("ab") as metrics:
        for step in (4, 5):
            metrics.write(orjson.dumps({"step": step, "t": time.time(), "reward_mean": step / 10}) + b"\n")
    store.catch_up()
    assert [line.split(" · ")[:2] for line in progress.new_lines(store.view())] == [
        ["step 4/5", "reward 0.400"],
        ["step 5/5", "reward 0.500"],
    ]
    log.emit("run.finished", ok=False, reason="interrupted")
    store.catch_up()
    assert progress.new_lines(store.view()) == ["stopped: interrupted"]
    assert "interrupted" in panel_of(store)
    log.emit("run.started", run="demo", recipe="demo", mode="async", steps=5)
    store.catch_up()
    assert "interrupted" not in panel_of(store)


def test_a_person_sees_that_the_run_is_paused(tmp_path: Path):
    write_fake_run(tmp_path, steps=3, finished=False)
    store, progress = RunStore(tmp_path), ProgressLog()
    store.catch_up()
    progress.new_lines(store.view())
    log = EventLog(tmp_path, "scheduler-2", "node-0")
    for flow, line, shown in (("pause", "paused, requested", True), ("run", "running, requested", False)):
        log.emit("scheduler.flow", flow=flow, was="", open_groups=0)
        store.catch_up()
        assert progress.new_lines(store.view()) == [f"{line} by `longshore ctl`"]
        assert ("training, paused" in panel_of(store)) is shown


def test_steps_repeated_after_a_death_are_printed_again(tmp_path: Path):
    write_fake_run(tmp_path, steps=3, finished=False)
    store, progress = RunStore(tmp_path), ProgressLog()
    store.catch_up()
    progress.new_lines(store.view())
    with (tmp_path / "metrics.jsonl").open("ab") as metrics:
        metrics.write(orjson.dumps({"rewound_to": 2}) + b"\n")
    EventLog(tmp_path, "driver-2", "node-0").emit("learner.restarted", step=2)
    store.catch_up()
    assert progress.new_lines(store.view()) == [
        "learner resumed from the checkpoint of step 2; later steps are taken again"
    ]
    with (tmp_path / "metrics.jsonl").open("ab") as metrics:
        metrics.write(orjson.dumps({"step": 3, "t": time.time(), "reward_mean": 0.5}) + b"\n")
    store.catch_up()
    assert [line.split(" · ")[0] for line in progress.new_lines(store.view())] == ["step 3/3"]


def test_images_that_become_ready_are_printed_at_every_fifth(tmp_path: Path):
    log, store, progress = EventLog(tmp_path, "scheduler", "node-0"), RunStore(tmp_path), ProgressLog()
    lines: list[str] = []
    for ready in range(1, 41):
        log.emit("images.counted", tasks=40, ready=ready, failed=0)
        store.catch_up()
        lines += progress.new_lines(store.view())
        assert (f"images {ready} of 40" in panel_of(store)) is (ready < 40)
    assert lines == [f"images: {ready} of 40 ready" for ready in (1, 8, 16, 24, 32, 40)]


def test_a_phase_without_steps_prints_its_progress_at_every_fifth(tmp_path: Path):
    """A log that is silent for the minutes of a warm start looks like a run that hangs."""
    log, store, progress = EventLog(tmp_path, "driver", "node-0"), RunStore(tmp_path), ProgressLog()
    lines: list[str] = []
    for phase, kind, done in (
        ("warm_start", "warm_start.progress", "step"),
        ("evaluation_before", "evaluation.progress", "done"),
    ):
        log.emit("run.phase", phase=phase, detail="")
        for count in range(0, 101, 5):
            log.emit(kind, name="before", **{done: count, "steps": 100, "total": 100})
            store.catch_up()
            lines += progress.new_lines(store.view())
    fifths = [f"{count} of 100" for count in (20, 40, 60, 80, 100)]
    assert lines == [
        "warm start",
        *(f"warm start: {each}" for each in fifths),
        "evaluation before",
        *(f"evaluation before: {each}" for each in fifths),
    ]


def test_the_last_progress_of_an_evaluation_is_printed_before_its_result(tmp_path: Path):
    log = EventLog(tmp_path, "driver", "node-0", itertools.count(1.0).__next__, steady=None)
    store = RunStore(tmp_path)
    log.emit("run.phase", phase="evaluation_after", detail="")
    log.emit("evaluation.progress", name="after", done=8, total=8)
    log.emit("evaluation.finished", name="after", pass_at_1=0.5, stderr=None, n=8)
    store.catch_up()
    assert ProgressLog().new_lines(store.view()) == [
        "evaluation after",
        "evaluation after: 8 of 8",
        "evaluation after: pass@1 50.0 % (8 episodes)",
    ]


async def test_a_cancelled_run_reports_its_last_step(tmp_path: Path):
    out, store = io.StringIO(), RunStore(tmp_path)
    write_fake_run(tmp_path, steps=3, finished=False)

    async def cut_short() -> None:
        async with asyncio.timeout(0):
            await show_progress(store, Console(file=out))

    with pytest.raises(TimeoutError):
        await cut_short()
    assert "step 2/3" in out.getvalue()


async def test_lines_printed_while_the_panel_is_shown_stay_on_the_terminal(tmp_path: Path):
    """Without this, the panel overwrites the lines on tasks left out or on the number of nodes."""
    write_fake_run(tmp_path, steps=3, finished=False)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=60)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        display = group.create_task(show_progress(RunStore(tmp_path), console))
        while out.getvalue().count("\n") < 5:  # noqa: ASYNC110  drawn by another task
            await asyncio.sleep(0.01)
        console.print("left out: task [old]", markup=False)
        display.cancel()
    screen = pyte.Screen(100, 60)
    pyte.Stream(screen).feed(out.getvalue().replace("\n", "\r\n"))
    assert any(line.startswith("left out: task [old]") for line in screen.display)


async def test_a_display_that_fails_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write_fake_run(tmp_path, steps=2)
    out = io.StringIO()
    out.close()
    await show_progress(RunStore(tmp_path), Console(file=out))
    assert "the run goes on" in caplog.text


def test_no_line_is_printed_twice(tmp_path: Path):
    write_fake_run(tmp_path, steps=3)
    store, progress = RunStore(tmp_path), ProgressLog()
    store.catch_up()
    assert progress.new_lines(store.view())
    assert progress.new_lines(store.view()) == []


def test_the_panel_shows_the_run_at_any_moment(tmp_path: Path):
    run_dir = tmp_path / "demo"
    run_dir.mkdir()
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    console.print(render_panel(RunStore(run_dir).view()))
    assert "waiting for the first event" in out.getvalue()
    write_fake_run(run_dir, steps=3, finished=False)
    store = RunStore(run_dir)
    store.catch_up()
    console.print(render_panel(store.view()))
    for word in (
        "training",
        "reward",
        "pass rate",
        "tokens/s",
        "staleness",
        "engine pause",
        "sandboxes live",
        "masked",
    ):
        assert word in out.getvalue()


def test_problems_are_printed_once_between_the_steps(tmp_path: Path):
    write_fake_run(tmp_path, steps=2)
    log = EventLog(tmp_path, "scheduler", "node-0")
    log.emit("process.died", what="demo/1/worker-1", why="its process 7 ended; process 8 is in its place")
    log.emit("alert.raised", name="zero_variance", text="no reward differs")
    log.emit("episode.failed", trajectory="train-g000001-s00", reason="sandbox_start", detail="no answer")
    store, progress = RunStore(tmp_path), ProgressLog()
    store.catch_up()
    lines = progress.new_lines(store.view())
    assert lines.count("demo/1/worker-1 died: its process 7 ended; process 8 is in its place") == 1
    assert lines.count("no reward differs") == 1
    assert not any("no answer" in line for line in lines)
    assert "infra failures 1" in next(line for line in lines if line.startswith("step 2/2"))
    assert progress.new_lines(store.view()) == []


def test_a_failed_episode_of_an_evaluation_is_printed_at_once(tmp_path: Path):
    """No step's line counts it: without a line of its own, an evaluation that gets no sandbox looks idle."""
    log = EventLog(tmp_path, "scheduler", "node-0")
    log.emit("run.phase", phase="evaluation_before", detail="")
    log.emit("episode.failed", trajectory="before-g000001-s00", reason="sandbox_start", detail="no answer")
    store, progress = RunStore(tmp_path), ProgressLog()
    store.catch_up()
    lines = progress.new_lines(store.view())
    assert lines.count("before-g000001-s00 failed: sandbox_start, no answer") == 1
    assert progress.new_lines(store.view()) == []


def test_a_step_line_says_what_each_number_counts(tmp_path: Path):
    write_fake_run(tmp_path, steps=3)
    store = RunStore(tmp_path)
    store.catch_up()
    view = store.view()
    counts = f"tokens trained {view.tokens.trained:,}, masked {view.tokens.masked:,} · episodes dropped "
    assert counts in format_step_line(view)
