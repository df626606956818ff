"""If this fails, a run cannot have its episodes on an environment service, or starts sandboxes of its own all the same;
or the service's command leaves some."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from sandbox.host_record import SandboxHost
from tests.support.runs.cluster_runs import ROOT, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


@pytest.fixture
def service(docker_engine: SandboxHost, tmp_path: Path) -> Iterator[str]:
    """Its address; it ends as a person ends it, and says nothing."""
    command = [sys.executable, "-m", "launch.environment", "--port", "0", "--slots", "8", "--state", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def test_a_run_trains_on_episodes_of_an_environment_service(mini_runs: MiniRuns, service: str) -> None:
    keys = ("--set", "sandbox.provider=environment", "--set", "evaluation.tasks_per_family=0", "--steps", "1")
    run = mini_runs.start("environment", *keys, env={"ENVIRONMENT_URLS": service})
    assert run.succeed()["steps"] == 1
    assert_accounting_balances(run.path)
    trajectories = [read_exported_trajectory(run.path, entry) for entry in read_export_index(run.path)]
    assert len(trajectories) >= 16
    assert all(each.sampled_tokens and "acquire" in each.timings_ms for each in trajectories)
    assert not run.events("sandbox.started"), "a sandbox of the run's own"
