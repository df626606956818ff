"""If this fails, nobody can say how much sooner a run is done that never waits for the learner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from launch.bench.training_modes.tool_delays import ToolDelays
from protocol.run_directory.run_tail import read_events
from protocol.trajectory import is_training_trajectory
from sandbox.host_record import SandboxHost
from tests.support.runs.cluster_runs import RECIPE, Event
from tests.support.tasks.coin_tasks import write_coin_tasks

MODES = ("async", "sync", "one_step_off")
WAITS = ("--median-s", "0.5", "--p95-s", "2")


def slept(run: Path) -> list[tuple[float, float]]:
    """Return, for each training episode that ran a command, milliseconds of its tool calls and how many had to wait."""
    waits, events = ToolDelays("0/1", 0.5, 2.0), cast("list[Event]", list(read_events(run)))
    started = {event["trajectory"]: event for event in events if event["kind"] == "episode.started"}
    calls = [event for event in events if event.get("tool") == "shell_exec"]
    acted = {event["trajectory"] for event in calls if not event["command"].startswith("shell_exec(")}
    ended = [
        event for event in events if event["kind"] == "episode.finished" and is_training_trajectory(event["trajectory"])
    ]
    return [
        (event["ms"]["tool"], 1000 * waits.draw_delay_s(start["task"], start["sample"]))
        for event in ended
        if event["trajectory"] in acted
        for start in [started[event["trajectory"]]]
    ]


@pytest.mark.docker
@pytest.mark.ray
@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_every_arm_is_a_complete_run_with_waiting_episodes(docker_engine: SandboxHost, tmp_path: Path) -> None:
    tasks, folder = write_coin_tasks(tmp_path / "tasks"), tmp_path / "kept"
    keys = [f"data.path={tasks}", "sandbox.heartbeat_timeout_s=120", "evaluation.tasks_per_family=2"]
    sizes = ["--steps", "1", "--repetitions", "1", "--attempts", "2", "--starts", "2", *WAITS]
    sets = [word for key in keys for word in ("--set", key)]
    command = [sys.executable, "-m", "launch.bench", "training-modes", "--json", str(RECIPE), *sets, *sizes]
    done = subprocess.run(
        [*command, "--output", str(folder)], check=False, capture_output=True, text=True, timeout=2400
    )
    assert done.stdout, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert done.returncode == bool(report["failed"]), done.stderr[-4000:]
    for figure in ("episodes_per_s", "finished_per_s"):
        assert min(report[figure][mode] for mode in MODES) > 0
    assert report["async_vs_sync"] > 0 < report["async_vs_one_step_off"]
    assert 0 < report["sleep_share"] < 1
    assert {mode: report["eval_after"][mode]["n"] for mode in MODES} == dict.fromkeys(MODES, 4)
    assert len(report["eval_difference"]["ci95"]) == 2
    assert all(0 <= share <= 1 for mode in MODES for share in report["idle"][mode].values())
    assert report["in_flight"] == {"async": 96, "sync": 32, "one_step_off": 32}
    for mode in MODES:
        run = folder / "runs" / f"1-{mode}"
        assert json.loads((run / "summary.json").read_text())["mode"] == mode
        assert not (run / "evaluations" / "before").exists()
        waited = [tool_ms >= wait_ms - 1 for tool_ms, wait_ms in slept(run)]
        assert sum(waited) > len(waited) / 2, "a command that the shell does not take, unclosed quotes say, is no wait"
    assert len(list((folder / "runs" / ".cache").iterdir())) == 1, "more than one warm start"
