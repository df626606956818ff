"""If this fails, `longshore bench chaos` waits without end for a victim that is there, or kills without end."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench.chaos import killer as killer_module
from launch.bench.chaos.kill_plan import ChaosGoal, PlannedKill, scale_goal
from launch.bench.chaos.kill_points import Kill, KilledProcess, KillPoint, read_kills, write_kill
from launch.bench.chaos.killer import Killer
from launch.bench.chaos.run_observer import RunObserver
from launch.bench.chaos.run_supervisor import RunSupervisor
from launch.processes.process_reaper import RunProcess
from protocol.events import EventLog

GOAL: ChaosGoal = replace(scale_goal(10), trajectories=0)


@pytest.fixture
def worker() -> Iterator[int]:
    with subprocess.Popen(("ray::RolloutWorker", "600"), executable="sleep") as process:
        yield process.pid
        process.kill()


async def test_a_worker_with_the_number_of_a_dead_one_is_killed_too(
    worker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives the numbers of the dead away again, which a run of hours sees."""
    alive = {RunProcess(worker, 1)}
    found = deque([alive, alive, set[RunProcess]()])  # busy, dying, gone; then there is another one
    monkeypatch.setattr(killer_module, "find_run_processes", lambda token: found.popleft() if found else alive)
    monkeypatch.setattr(killer_module, "_PATIENCE_S", 20.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    log, steps = EventLog(tmp_path, "worker-0-0", "node-0"), itertools.count(1)

    def start_worker(line: str = "") -> None:
        log.emit("worker.started", worker="worker-0-0", incarnation=f"{worker}.18f")
        log.emit("episode.started", trajectory="train-g000000-s00-a0")
        log.emit("learner.step", step=next(steps))

    log.emit("run.phase", phase="training")
    start_worker()
    names = {KilledProcess.WORKER: "RolloutWorker"}
    killer = Killer(tmp_path, RunObserver(tmp_path), RunSupervisor(tmp_path, (), "r"), names, GOAL, start_worker)
    await killer.run([PlannedKill(KilledProcess.WORKER, None, 0.0)] * 2)
    assert [kill.pid for kill in read_kills(tmp_path)] == [worker, worker]


class ScriptedObserver(RunObserver):
    """Reads the events of a script, one more entry at each look."""

    script: Sequence[Callable[[], None]] = ()

    def read_new_events(self) -> None:
        for write in self.script[:1]:
            write()
        self.script = self.script[1:]
        super().read_new_events()


async def test_a_learner_is_killed_while_episodes_run_and_again_only_after_a_step_that_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, observer = EventLog(tmp_path, "worker-0-0", "node-0"), ScriptedObserver(tmp_path)
    seen: list[tuple[int, int]] = []

    def arm(folder: Path, point: KillPoint, victim: KilledProcess) -> None:
        seen.append((observer.steps, observer.in_flight.count))
        write_kill(folder, Kill(time.time() + 1, victim, 7, point))  # events have milliseconds

    monkeypatch.setattr(killer_module, "arm_kill_point", arm)
    monkeypatch.setattr(killer_module, "_LOOK_S", 0.0)
    monkeypatch.setattr(killer_module, "_PATIENCE_S", 20.0)

    def take_step(step: int) -> None:
        log.emit("learner.step", step=step)

    def start_episode() -> None:
        log.emit("worker.started", worker="worker-0-0", incarnation="1.18f")
        log.emit("episode.started", trajectory="train-g000000-s00-a0")

    log.emit("run.phase", phase="training")
    repeated = [lambda: take_step(1)] * 8
    observer.script = [*repeated, start_episode, *repeated, lambda: take_step(2), *repeated, lambda: take_step(3)]
    killer = Killer(tmp_path, observer, RunSupervisor(tmp_path, (), "r"), {}, GOAL, lambda line: None)
    await killer.run([PlannedKill(KilledProcess.LEARNER, KillPoint.LEASE_STEP, 0.0)] * 2)
    assert seen == [(1, 1), (2, 1)]
