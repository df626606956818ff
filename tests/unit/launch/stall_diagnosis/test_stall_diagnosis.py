"""If these fail, a run that hangs says nothing, blames somebody else, or is ended by the look at it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import ActorDied
from actors.runtime.task_inspection import describe_remote_call
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from launch.stall_diagnosis import evidence as evidence_module
from launch.stall_diagnosis.detector import StallDetector
from launch.stall_diagnosis.evidence import gather_evidence
from launch.stall_diagnosis.report_file import write_stall_report
from launch.stall_diagnosis.wait_chain import ProcessState, StallEvidence, describe_wait_chain
from protocol.events import EventLog
from protocol.processes.stack_dumps import register_stack_dump
from protocol.processes.task_stacks import TaskStack, collect_task_stacks
from protocol.run_directory.run_tail import read_events
from tests.support.fakes.fake_clock import FakeClock

TRAINS = "launch/training/loop.py:230 TrainingLoop.run"


def task(name: str, waits_for: str = "", place: str = "launch/x.py:1 f", group: Sequence[str] = ()) -> TaskStack:
    return TaskStack(name, (place,), waits_for, tuple(group))


def training(waits_for: str = "", group: Sequence[str] = ()) -> TaskStack:
    return TaskStack("Task-1", ("launch/run/driver.py:9 Driver._run_phases", TRAINS), waits_for, tuple(group))


EPISODES = [task(f"train-g00000{number}-s00-a0", "engine-0.generate") for number in range(3)]


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        (
            StallEvidence(
                {
                    "driver": [task("Task-9", "engine-1.status"), training("buffer.wait_progress")],
                    "worker-0-0": [
                        *EPISODES,
                        task("train-g000009-s00-a0", place="sandbox/session/shell.py:3 Shell.run"),
                    ],
                    "engine-0": [task("Task-3", place="actors/engines/server/client.py:80 EngineClient.generate")],
                },
                processes=[ProcessState(7, "S", "", "ray::Worker"), ProcessState(42, "T", "", "sglang::scheduler")],
            ),
            (
                "the training waits for buffer (wait_progress); 3 of 4 episodes wait for engine-0 (generate); engine-0 "
                "has 1 of 1 tasks in actors/engines/server/client.py:80 EngineClient.generate; "
                "process 42 (sglang::scheduler) is stopped (SIGSTOP)"
            ),
        ),
        (
            StallEvidence(
                {
                    "driver": [training("buffer.lease")],
                    "worker-0-0": [task("tell"), task("w", "scheduler.acquire_requests")],
                }
            ),
            (
                "the training waits for buffer (lease); no episode runs: "
                "1 workers wait for rollout requests of the scheduler"
            ),
        ),
        (
            StallEvidence({"driver": [training(group=["Task-2"]), task("Task-2", "learner-0")]}, {"learner-0": "gone"}),
            "the training waits for learner-0; learner-0 does not answer (gone)",
        ),
        (
            StallEvidence({"driver": [training("learner-0")], "learner-0": []}),
            "the training waits for learner-0; learner-0 waits for nothing known: see its stacks",
        ),
        (
            StallEvidence({"driver": [training("scheduler.set_state")], "scheduler": [task("t", "buffer.open_group")]}),
            "the training waits for scheduler (set_state); scheduler waits for buffer (open_group); no episode runs",
        ),
        (
            StallEvidence(
                {"driver": [TaskStack("t", ("a.py:1 Driver._run_phases", "launch/data/preparation.py:7 prepare"), "")]}
            ),
            "the driver is in launch/data/preparation.py:7 prepare",
        ),
        (StallEvidence({}), "the driver has no known task"),
    ],
)
def test_one_line_describes_the_chain_of_waits(evidence: StallEvidence, says: str) -> None:
    assert describe_wait_chain(evidence) == says


def test_actors_that_wait_for_each_other_are_named_once() -> None:
    tasks = {"driver": [training("a.x")], "a": [task("t", "b.y")], "b": [task("t", "a.z")]}
    assert (
        describe_wait_chain(StallEvidence(tasks))
        == "the training waits for a (x); a waits for b (y); b waits for a (z)"
    )


# -- evidence --------------------------------------------------------------------------------------------------------


class HangingHandle:
    """Ray's handle of an engine that takes calls and answers none."""

    def __getattr__(self, name: str) -> HangingHandle:
        return self

    def __call__(self, **_: object) -> HangingHandle:
        return self

    def remote(self, *_: object) -> asyncio.Future[object]:
        return asyncio.get_running_loop().create_future()


async def test_a_hanging_call_is_described_by_actor_and_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.cancel", lambda *_, **__: None)
    engine = Remote[Engine]("run/1/engine-0", HangingHandle())
    calls = {
        "statistics": engine.call(Engine.statistics),
        "status": engine.call_once(Engine.status),
        "value": engine.submit(Engine.statistics).get(),
    }
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work, name=name) for name, work in calls.items()]
        await asyncio.sleep(0)
        found = {stack.name: stack.waits_for for stack in collect_task_stacks(tasks, describe_remote_call)}
        for each in tasks:
            each.cancel()
    assert found == {"statistics": "engine-0.statistics", "status": "engine-0.status", "value": "engine-0"}


class FakeActor:
    def __init__(self, name: str, tasks: Sequence[TaskStack] | Exception | None) -> None:
        self.name, self._tasks = f"run/1/{name}", tasks

    async def list_tasks(self) -> Sequence[TaskStack]:
        if self._tasks is None:
            await asyncio.Event().wait()
        if isinstance(self._tasks, Exception):
            raise self._tasks
        return self._tasks or ()


STOPS = """
import os, signal

def in_the_middle():
    os.kill(os.getpid(), signal.SIGSTOP)

in_the_middle()
"""


@contextmanager
def stopped_child(token: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of the run with ``token``, which is stopped."""
    command = [sys.executable, "-c", STOPS]
    with subprocess.Popen(command, env=os.environ | {RUN_TOKEN_VARIABLE: token}) as child:
        try:
            os.waitpid(child.pid, os.WUNTRACED)
            yield child
        finally:
            child.kill()


async def test_every_process_is_asked_and_silent_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_module, "PATIENCE_S", 0.05)
    register_stack_dump(tmp_path / "driver.stacks", "driver")
    actors = [
        FakeActor("buffer", [task("serve")]),
        FakeActor("engine-0", None),
        FakeActor("worker-0-0", ActorDied("worker-0-0", "its process ended")),
    ]
    with stopped_child("mine") as child:
        found = await gather_evidence(actors, [tmp_path / "driver.stacks", tmp_path / "none.stacks"], "mine")
    assert found.tasks["buffer"] == [task("serve")]
    assert any("test_every_process_is_asked" in frame for each in found.tasks["driver"] for frame in each.frames)
    assert found.silent == {"engine-0": "no answer within 0.05 s", "worker-0-0": "its process ended"}
    assert [(each.pid, each.state) for each in found.stopped] == [(child.pid, "T")]
    assert "in ask_stacks" in found.stacks["driver"] or "_send" in found.stacks["driver"]
    assert "has not registered" in found.stacks["none"]
    (stacks,) = (text for name, text in found.stacks.items() if name.startswith(f"process {child.pid} "))
    assert "in_the_middle" in stacks, "a process that can write no stacks of its own"


def test_the_stall_report_has_the_summary_line_and_every_stack(tmp_path: Path) -> None:
    found = StallEvidence(
        {"driver": [training("buffer.lease")]},
        {"engine-0": "no answer"},
        [ProcessState(42, "T", "do_signal_stop", "sglang::scheduler")],
        {"learner-0": 'File "x.py", line 1 in exchange'},
    )
    first, second = (write_stall_report(tmp_path, "a waits for b", found) for _ in range(2))
    assert (first.name, second.name) == ("hang-1.txt", "hang-2.txt")
    lines = first.read_text().splitlines()
    assert lines[0] == "a waits for b"
    for part in ("do_signal_stop", "TrainingLoop.run", "engine-0: no answer", "in exchange", "waits for buffer.lease"):
        assert any(part in line for line in lines), part


# -- noticing --------------------------------------------------------------------------------------------------------


class HangingRun:
    """Sampled its last token long ago."""

    def __init__(self, run_dir: Path, report: Callable[[], tuple[str, str]] = lambda: ("a waits for b", "hang-1.txt")):
        self.run_dir, self.clock, self.tokens, self.limit_s = run_dir, FakeClock(), 5, 60.0
        self._report = report
        self.watch = StallDetector(
            events=EventLog(run_dir, "driver-1", "node-0"),
            limit_s=lambda: self.limit_s,
            sampled_tokens=self.sampled,
            report=self.report,
            now=self.clock,
        )

    async def sampled(self) -> int:
        return self.tokens

    async def report(self) -> tuple[str, str]:
        return self._report()

    async def after(self, seconds: float) -> None:
        self.clock.now += seconds
        await self.watch.check_progress()

    def event_kinds(self) -> list[str]:
        return [str(event["kind"]) for event in read_events(self.run_dir)]


async def test_a_stalled_run_is_reported_once_and_again_when_it_continues(tmp_path: Path) -> None:
    run = HangingRun(tmp_path)
    for seconds in (0.0, 59.0):
        await run.after(seconds)
    assert run.event_kinds() == []
    for seconds in (1.0, 60.0, 60.0):
        await run.after(seconds)
    assert run.event_kinds() == ["run.stalled", "alert.raised"]
    stalled, advice = read_events(tmp_path)
    assert (stalled["text"], stalled["path"], stalled["seconds"]) == ("a waits for b", "hang-1.txt", 60.0)
    assert advice["text"] == "no progress for 60 s: a waits for b (all stacks: hang-1.txt)"
    run.tokens += 1
    await run.after(1.0)
    assert run.event_kinds() == ["run.stalled", "alert.raised", "alert.resolved"]
    await run.after(61.0)
    assert run.event_kinds().count("run.stalled") == 2


async def test_only_events_of_progress_reset_the_stall_timer(tmp_path: Path) -> None:
    run = HangingRun(tmp_path)
    await run.after(50.0)
    run.watch.observe_event({"kind": "episode.turn"})
    await run.after(50.0)
    assert run.event_kinds() == []
    run.watch.observe_event({"kind": "sandbox.counted"})
    await run.after(10.0)
    assert run.event_kinds() == ["run.stalled", "alert.raised"]


async def test_a_paused_run_and_a_run_without_a_stall_limit_are_not_reported(tmp_path: Path) -> None:
    run = HangingRun(tmp_path)
    run.watch.observe_event({"kind": "scheduler.flow", "flow": "pause"})
    await run.after(1000.0)
    run.watch.observe_event({"kind": "scheduler.flow", "flow": "run"})
    run.limit_s = 0.0
    await run.after(1000.0)
    assert run.event_kinds() == []


async def test_a_failed_diagnosis_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    def fail() -> tuple[str, str]:
        raise OSError("no space")

    run = HangingRun(tmp_path, fail)
    await run.after(0.0)
    await run.after(61.0)
    reported, _ = read_events(tmp_path)
    assert "the diagnosis failed (OSError: no space)" in str(reported["text"])
