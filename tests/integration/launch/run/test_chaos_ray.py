"""If this fails, a Ray that was killed leaves a run that hangs, or processes, shared memory and containers of it."""

from __future__ import annotations

import pytest

from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.run_resources import RunResources
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.chaos]

STEPS = 4
NO_EVALUATION = ("--steps", str(STEPS), "--set", "evaluation.tasks_per_family=0")


@pytest.mark.parametrize("which", ["raylet", "gcs_server"], ids=["raylet", "head"])
def test_a_ray_that_was_killed_ends_the_run_and_nothing_of_it_is_left(mini_runs: MiniRuns, which: str) -> None:
    """Within the containers' deadline and the time that it takes to notice; and the run can be gone on with."""
    run = mini_runs.start(f"killed-{which}", *NO_EVALUATION)
    run.wait_step(1)
    resources = RunResources(run)
    run.kill_process(f"/{which}")
    finished = run.finish(within_s=120)
    assert finished.exit_code != 0
    resources.wait_until_released()
    lines = finished.stderr.splitlines()
    assert any(f"--resume killed-{which}" in line for line in lines), finished.stderr[-3000:]
    assert "Traceback" not in finished.stderr
    summary = mini_runs.resume(f"killed-{which}").succeed()
    assert summary["steps"] == STEPS
    assert_accounting_balances(run.path)
