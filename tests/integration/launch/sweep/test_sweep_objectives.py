"""If these fail, an objective of the sweep cannot be trained, or runs that begin alike are compared with strangers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.sweep.definition import build_sweep, read_definition
from launch.sweep.sweep_loop import SUMMARY_FILE
from tests.support.runs.cluster_runs import RECIPE, ROOT, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

BATCHES = 4
"""The number of batches of .ci/run; this file belongs to one of them."""
SMALL = {
    "warm_start.copy_steps": 0,
    "warm_start.clean_steps": 60,
    "warm_start.noisy_steps": 0,
    "warm_start.batch_size": 8,
    "warm_start.lr": "1e-2",
    "warm_start.warmup_steps": 5,
    "data.kind": "terminal_bench",
    "agent.max_new_tokens": 48,
    "agent.max_turns": 2,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 4,
    "rollout.episodes_per_worker": 8,
    "sandbox.start_concurrency": 2,
    "run.disk_reserve_mb": 64,
    "evaluation.tasks_per_family": 1,
    "evaluation.attempts": 2,
}
"""The demo's model on tasks whose hidden test tosses a coin, so that there is something to learn after a short warm
start."""


def rotating() -> str:
    """One of the objectives: another one each time that this file is another commit's, or another CI_BATCH's, turn."""
    points = build_sweep(read_definition("objectives")[1], "", {}, []).points
    names = sorted({point.axes["objective"] for point in points})
    if batch := os.environ.get("CI_BATCH"):
        return names[int(batch) // BATCHES % len(names)]
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "0"
    return names[int(head[8:16] or "0", 16) % len(names)]  # the first digits choose the batch


def swept(out: Path, *words: str, **values: object) -> dict[str, Any]:
    """The summary.  What a few steps come to may miss the goal, which fails the command and not the sweep."""
    sets = [f"--set={key}={value}" for key, value in values.items()]
    command = [sys.executable, "-m", "launch.sweep", *words, *sets, "--output", str(out), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr[-4000:]
    summary = json.loads(done.stdout)
    assert json.loads((out / SUMMARY_FILE).read_text())["points"] == summary["points"]
    return summary


def test_two_steps_of_one_of_the_objectives(mini_runs: MiniRuns, tmp_path: Path) -> None:
    point = f"{rotating()}-seed0"
    values = {**SMALL, "data.path": mini_runs.tasks, "run.steps": 2}
    summary = swept(tmp_path / "out", "objectives", "--only", point, **values)
    (ended,) = [each for each in summary["points"] if each["name"] == point]
    assert (ended["state"], ended["values"]["steps"]) == ("ended", 2), ended["why"]
    assert ended["values"]["staleness_max"] <= 4
    assert ended["values"].keys() >= {"before", "after", "difference"}
    assert_accounting_balances(Path(ended["folder"]))


def test_runs_that_begin_alike_share_the_warm_start_and_the_evaluation_before(
    mini_runs: MiniRuns, tmp_path: Path
) -> None:
    values = {"data.path": mini_runs.tasks, "run.steps": 1}
    summary = swept(tmp_path / "out", str(RECIPE), "--axis", "learner.loss=clip,cispo", **values)
    first, second = summary["points"]
    assert (first["state"], second["state"]) == ("ended", "ended"), summary
    assert first["values"]["before"] == second["values"]["before"] is not None
    files = [Path(point["folder"]) / "evaluations" / "before" / "attempts.jsonl" for point in (first, second)]
    assert files[0].read_bytes() == files[1].read_bytes()
    warm = list((tmp_path / "out" / "runs" / ".cache").glob("warm-start-*"))
    assert len(warm) == 1
