"""If this fails, `longshore bench chaos` waits without end for a victim that is there."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench.chaos import killer as killer_module
from launch.bench.chaos.kill_plan import PlannedKill, scale_goal
from launch.bench.chaos.kill_points import KilledProcess, read_kills
from launch.bench.chaos.killer import Killer
from launch.bench.chaos.run_observer import RunObserver
from launch.bench.chaos.run_supervisor import RunSupervisor
from launch.processes.process_reaper import RunProcess
from protocol.events import EventLog


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
    log = EventLog(tmp_path, "worker-0-0", "node-0")

    def start_worker(line: str = "") -> None:
        log.emit("worker.started", worker="worker-0-0", incarnation=f"{worker}.18f")
        log.emit("episode.started", trajectory="train-g000000-s00-a0")
        log.emit("learner.step")

    log.emit("run.phase", phase="training")
    start_worker()
    goal = replace(scale_goal(10), trajectories=0)
    names = {KilledProcess.WORKER: "RolloutWorker"}
    killer = Killer(tmp_path, RunObserver(tmp_path), RunSupervisor(tmp_path, (), "r"), names, goal, start_worker)
    await killer.run([PlannedKill(KilledProcess.WORKER, None, 0.0)] * 2)
    assert [kill.pid for kill in read_kills(tmp_path)] == [worker, worker]
