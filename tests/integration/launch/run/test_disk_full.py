"""If this fails, a full disk costs a user acknowledged work, or ends a run without a word on how to go on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.files.filesystem import free_bytes
from tests.support.runs.cluster_runs import MiniRun, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances, read_ledger

pytestmark = [
    pytest.mark.docker,
    pytest.mark.ray,
    pytest.mark.sglang,
    pytest.mark.chaos,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs"),
]

RESERVE_MB, STEPS = 48, 8
OPTIONS = (
    *("--steps", str(STEPS), "--set", "evaluation.tasks_per_family=0"),
    *("--set", f"run.disk_reserve_mb={RESERVE_MB}", "--set", "checkpoint.keep=2"),
)


@pytest.fixture
def small_disk(mini_runs: MiniRuns, tmp_path: Path) -> Iterator[Path]:
    """A folder of runs on a disk of its own; what earlier runs have warmed up is there."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)], check=True)
    if (mini_runs.folder / ".cache").exists():
        shutil.copytree(mini_runs.folder / ".cache", folder / ".cache")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave_bytes: int) -> None:
    """Leave so much free on ``disk``, which a run is writing to meanwhile."""
    with (disk / "ballast").open("wb") as ballast:
        while (size := free_bytes(disk) - leave_bytes) > 0:
            try:
                os.posix_fallocate(ballast.fileno(), 0, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return


def stops_and_says_how_to_go_on(run: MiniRun) -> None:
    finished = run.finish()
    assert finished.exit_code == 2, finished.stderr[-4000:]
    message = finished.json["error"]
    assert f"--resume {run.path.name}" in message
    assert "free" in message
    assert "Traceback" not in finished.stderr
    assert run.list_containers() == []


def goes_on_after_that(run: MiniRun, disk: Path, mini_runs: MiniRuns) -> None:
    acknowledged = {event["trajectory"] for event in run.events("trajectory.acknowledged")}
    subprocess.run(["mount", "-o", "remount,size=512m", str(disk)], check=True)
    summary = mini_runs.resume(run.path.name, runs=disk).succeed()
    assert summary["steps"] == STEPS == len(read_ledger(run.path))
    journal = assert_accounting_balances(run.path)
    assert acknowledged <= set(journal.rows), "an acknowledged trajectory is gone"


def test_no_group_is_opened_that_might_not_fit(mini_runs: MiniRuns, small_disk: Path) -> None:
    run = mini_runs.start("nearly-full", *OPTIONS, runs=small_disk)
    run.wait_step(1)
    fill(small_disk, (RESERVE_MB - 8) << 20)
    stops_and_says_how_to_go_on(run)
    assert run.events("admission.blocked")
    assert free_bytes(small_disk) > 0, "it went on until nothing was left"
    goes_on_after_that(run, small_disk, mini_runs)


def test_a_suddenly_full_disk_loses_no_acknowledged_work(mini_runs: MiniRuns, small_disk: Path) -> None:
    run = mini_runs.start("full", *OPTIONS, runs=small_disk)
    run.wait_step(1)
    fill(small_disk, 0)
    stops_and_says_how_to_go_on(run)
    goes_on_after_that(run, small_disk, mini_runs)
