"""The parts of a run over machines on a real cluster in network namespaces, without a model or a sandbox.  If these
fail, nothing of a run comes to another machine, or what is written there does not come back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.hosts.cluster_nodes import ROLES_LABEL
from launch.hosts.ray_environment import CLUSTER_RAY_ENVIRONMENT
from tests.support.network import machines
from tests.support.network.machines import Machine
from tests.support.runs.cluster_runs import ROOT, eventually

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(machines.why_unavailable() is not None, reason=str(machines.why_unavailable())),
]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Machine]]:
    with machines.machines(
        2, tmp_path, CLUSTER_RAY_ENVIRONMENT | {"RAY_gcs_rpc_server_reconnect_timeout_s": "20"}
    ) as made:
        yield made


def test_another_machine_receives_the_files_of_a_run_returns_its_output_and_keeps_nothing(
    two: list[Machine], tmp_path: Path
) -> None:
    head, second = two
    cluster = head.start_head()
    second.join(cluster, "--labels", f"{ROLES_LABEL}=engine", env={"LONGSHORE_HOME": "/nowhere"})
    script = Path(__file__).with_name("hosts_process.py")
    command = [*head.prefix(), sys.executable, str(script), cluster, str(tmp_path / "run"), head.address]
    done = subprocess.run(
        command, cwd=ROOT, env={**head.env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert output["roles"] == [["engine"], ["engine"]], output["findings"]
    assert output["remote"] == [False, True]
    assert output["model"] == "tokenizer"
    assert output["model_path"].startswith("/tmp/longshore/")
    assert output["held"] == ["engine-0", "learner"]
    events = (tmp_path / "run" / "events" / "noted.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in events] == ["noted"] * 3
    eventually("the end of its files there", lambda: not second.remaining_run_folders(), 120)


def test_no_actor_writes_where_another_account_of_a_machine_waits_for_it(two: list[Machine], tmp_path: Path) -> None:
    """The folder's name can be guessed, and a log is opened before its actor begins."""
    head, second = two
    cluster = head.start_head()
    second.join(cluster)
    waits = "mkdir -m 755 /tmp/longshore && mkdir -m 777 /tmp/longshore/run-1 && chown 65534 /tmp/longshore/run-1"
    subprocess.run([*second.prefix(), "sh", "-c", waits], check=True)
    script = Path(__file__).with_name("hosts_process.py")
    command = [*head.prefix(), sys.executable, str(script), cluster, str(tmp_path / "run"), head.address]
    done = subprocess.run(
        command, cwd=ROOT, env={**head.env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "/tmp/longshore/run-1 is not a folder that only this account can enter" in done.stderr
    found = subprocess.run([*second.prefix(), "find", "/tmp/longshore"], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["/tmp/longshore", "/tmp/longshore/run-1"]


def test_a_machine_keeps_no_process_and_no_file_of_a_run_after_its_ray_is_killed(
    two: list[Machine], tmp_path: Path
) -> None:
    """Its reaper sees to it, whatever else of Ray is left."""
    head, second = two
    cluster = head.start_head()
    second.join(cluster)
    script = Path(__file__).with_name("hosts_process.py")
    command = [*head.prefix(), sys.executable, str(script), cluster, str(tmp_path / "run"), head.address, "stays"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**head.env, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "settled\n"
        assert second.remaining_run_folders()
        second.kill_ray()
        eventually("the end of its files there", lambda: not second.remaining_run_folders(), 120)
        eventually("the end of its processes there", lambda: not second.pids(), 120)
        driver.kill()
