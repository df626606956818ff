"""If these fail, a run of `launch.bench chaos` kills less, or other processes, than it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from launch.bench.chaos import benchmark as chaos
from launch.bench.chaos.benchmark import ChaosAccounting, ChaosReport
from launch.bench.chaos.kill_plan import ChaosGoal, plan_kills, scale_goal
from launch.bench.chaos.kill_points import (
    AT_RANDOM,
    KILLS_FOLDER_VARIABLE,
    POINT_VICTIMS,
    Kill,
    KilledProcess,
    KillPoint,
    arm_kill_point,
    disarm_kill_point,
    read_kills,
)
from launch.bench.chaos.run_observer import RunObserver, count_in_flight_at_kills
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.run_directory.json_fields import Event

ACCOUNTING = ChaosAccounting(2000, 1500, 200, 290, 10, 0, 0, 0, 0, 0)


def test_a_goal_of_100_kills_is_15_of_each_process_2_at_each_point_and_2000_trajectories() -> None:
    assert scale_goal(100) == ChaosGoal(100, 15, 2, 2000)
    assert scale_goal(200) == ChaosGoal(200, 30, 4, 4000)
    assert scale_goal(10) == ChaosGoal(10, 1, 1, 200)
    with pytest.raises(UserError, match="10 or more"):
        scale_goal(9)


@pytest.mark.parametrize("kills", [10, 11, 33, 100])
def test_a_plan_reaches_its_goal(kills: int) -> None:
    goal = scale_goal(kills)
    plan = plan_kills(goal, 5, 4.0)
    assert len(plan) == kills
    by, at = Counter(order.process for order in plan), Counter((order.point, order.process) for order in plan)
    assert all(by[process] >= goal.by_process for process in AT_RANDOM)
    assert all(at[place] == goal.at_point for place in POINT_VICTIMS)
    assert by[KilledProcess.DRIVER] == 2 * goal.at_point, "a resume is tried after the manifest and after the commit"
    assert all(order.point is None or (order.point, order.process) in POINT_VICTIMS for order in plan)
    assert plan == plan_kills(goal, 5, 4.0) != plan_kills(goal, 6, 4.0)


DIES = """
from launch.bench.chaos.kill_points import KilledProcess, KillPoint, reach_kill_point
reach_kill_point(KillPoint.STEP_SHARD, KilledProcess.LEARNER)
reach_kill_point(KillPoint.MANIFEST_COMMIT, KilledProcess.BUFFER)
reach_kill_point(KillPoint.MANIFEST_COMMIT, KilledProcess.DRIVER)
print("alive")
"""


def test_a_process_dies_once_at_an_armed_kill_point_and_records_it(tmp_path: Path) -> None:
    def process() -> subprocess.CompletedProcess[str]:
        env = {**os.environ, KILLS_FOLDER_VARIABLE: str(tmp_path)}
        return subprocess.run([sys.executable, "-c", DIES], check=False, capture_output=True, text=True, env=env)

    arm_kill_point(tmp_path, KillPoint.MANIFEST_COMMIT, KilledProcess.DRIVER)
    assert process().returncode == -signal.SIGKILL
    assert process().stdout == "alive\n"
    (kill,) = read_kills(tmp_path)
    assert (kill.process, kill.point) == (KilledProcess.DRIVER, KillPoint.MANIFEST_COMMIT)
    arm_kill_point(tmp_path, KillPoint.STEP_SHARD, KilledProcess.LEARNER)
    disarm_kill_point(tmp_path, KillPoint.STEP_SHARD, KilledProcess.LEARNER)
    assert process().returncode == 0


def event(t: float, writer: str, kind: str, trajectory: str = "", pid: int = 0) -> Event:
    return {"t": t, "writer": writer, "kind": kind, "trajectory": trajectory, "incarnation": f"{pid}.18f"}


def kill(t: float, process: KilledProcess = KilledProcess.SCHEDULER, pid: int = 1) -> Kill:
    return Kill(t, process, pid, None)


def test_only_unfinished_episodes_of_living_workers_count_as_in_flight() -> None:
    events = [
        event(1, "worker-0-0", "worker.started", pid=10),
        event(1, "worker-0-1", "worker.started", pid=11),
        event(2, "worker-0-0", "episode.started", "train-g000000-s00-a0"),
        event(3, "worker-0-0", "episode.started", "train-g000000-s01-a0"),
        event(4, "worker-0-0", "trajectory.acknowledged", "train-g000000-s00"),
        event(5, "worker-0-1", "episode.started", "train-g000000-s02-a0"),
        event(6, "scheduler", "episode.failed", "train-g000000-s02"),
        event(7, "worker-0-0", "worker.started", pid=12),
        event(8, "worker-0-1", "episode.started", "train-g000000-s03-a0"),
        event(9, "driver-2", "run.started"),
    ]
    kills = [kill(t) for t in (7.5, 0.5, 2.5, 3.5, 4.5, 5.5, 6.5, 8.5, 9.5)]
    assert count_in_flight_at_kills(reversed(events), kills) == [0, 0, 1, 2, 1, 2, 1, 1, 0]


def test_episodes_of_a_killed_worker_do_not_count_as_in_flight_until_its_successor_starts() -> None:
    """Otherwise a kill would count although nothing was in flight."""
    events = [
        event(1, "worker-0-0", "worker.started", pid=10),
        event(2, "worker-0-0", "episode.started", "train-g000000-s00-a0"),
        event(3.1, "worker-0-0", "episode.started", "train-g000000-s01-a0"),
        event(5, "worker-0-0", "worker.started", pid=11),
        event(6, "worker-0-0", "episode.started", "train-g000000-s00-a1"),
    ]
    kills = [kill(3, KilledProcess.WORKER, 10), kill(4), kill(7), kill(8, KilledProcess.DRIVER), kill(9)]
    assert count_in_flight_at_kills(events, kills) == [1, 0, 1, 1, 0]


def test_an_observer_of_a_run_reads_new_events_and_skips_an_unfinished_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "worker-0-0", "node-0")
    witness = RunObserver(tmp_path)
    log.emit("worker.started", worker="worker-0-0", incarnation="4711.18f")
    log.emit("episode.started", trajectory="train-g000000-s00-a0")
    log.emit("episode.started", trajectory="train-g000000-s01-a0")
    witness.read_new_events()
    assert (witness.acknowledged, witness.in_flight.count, witness.in_flight.count_in_process(4711)) == (0, 2, 2)
    log.emit("trajectory.acknowledged", trajectory="train-g000000-s00", outcome="appended")
    log.emit("trajectory.rejected", trajectory="train-g000000-s01", outcome="unknown")
    with (tmp_path / "events" / "worker-0-0.jsonl").open("ab") as file:
        file.write(b'{"t": 5, "kind": "traj')
    witness.read_new_events()
    witness.read_new_events()
    assert (witness.acknowledged, witness.in_flight.count) == (1, 0)


def report(accounting: ChaosAccounting = ACCOUNTING, *, workers: int = 40, points: int = 2) -> ChaosReport:
    by = dict.fromkeys(KilledProcess, 15) | {
        KilledProcess.WORKER: workers,
        KilledProcess.BUFFER: 26,
        KilledProcess.DRIVER: 4,
    }
    return ChaosReport(scale_goal(100), by, dict.fromkeys(POINT_VICTIMS, points), accounting)


def test_a_chaos_report_passes_only_if_its_goal_is_met_and_nothing_is_wrong() -> None:
    assert report().passed
    assert not report(workers=39).passed, "99 kills"
    assert not report(workers=14).passed
    assert not report(points=1).passed
    assert not report(ChaosAccounting(1999, 1500, 200, 289, 10, 0, 0, 0, 0, 0)).passed
    assert not report(ChaosAccounting(2000, 1500, 200, 289, 10, 0, 0, 0, 0, 0)).passed, (
        "the sum is not what was acknowledged"
    )
    for wrong in range(5):
        assert not report(
            ChaosAccounting(2000, 1500, 200, 290, 10, *(int(place == wrong) for place in range(5)))
        ).passed


def test_the_json_report_has_every_promised_key() -> None:
    output = report().as_json()
    assert list(output) == [
        "kills",
        "kills_by",
        "kills_at",
        "acknowledged",
        "trained_exactly_once",
        "dropped",
        "in_buffer",
        "superseded",
        "lost",
        "duplicated",
        "sampler_skips",
        "versions_with_two_hashes",
        "negative_staleness",
    ]
    assert output["kills"] == 100
    assert output["kills_by"] == {"worker": 40, "buffer": 26, "scheduler": 15, "learner": 15, "driver": 4}
    assert output["kills_at"] == dict.fromkeys(KillPoint, 2) | {"manifest_commit": 4, "commit_compact": 4}
    assert chaos.RECIPE.is_file()
