"""If this fails, nobody can run on a Ray cluster that exists already, or a run takes the cluster down with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.hosts.ray_environment import LOCAL_RAY_ENVIRONMENT
from tests.support.runs.cluster_runs import PATIENCE_S, MiniRuns, all_listening_ports, eventually
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


SCRIPT = """
import sys
from ray.cluster_utils import Cluster
node = dict(num_cpus=64, object_store_memory=80 << 20, include_dashboard=False, node_ip_address="127.0.0.1")
cluster = Cluster(initialize_head=True, head_node_args=node | {"temp_dir": sys.argv[1]}, shutdown_at_exit=False)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.add_node(**node)
cluster.shutdown()
"""


class RayCluster:
    """Ray's own processes, started in a folder that is not the project's; each line on its input adds a node."""

    def __init__(self, folder: str) -> None:
        (Path(folder) / "ray").mkdir()  # where a test cluster leaves its address
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, folder],
            cwd=folder,
            env=os.environ | LOCAL_RAY_ENVIRONMENT | {"RAY_TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "Ray did not start"

    def add_node(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("node\n")
        self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        return int(self.address.rpartition(":")[2]) in all_listening_ports()

    def stop(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with tempfile.TemporaryDirectory(prefix="ls-ray-", ignore_cleanup_errors=True) as folder:
        nodes = RayCluster(folder)
        try:
            yield nodes
        finally:
            nodes.stop()


def test_a_run_joins_waits_for_its_nodes_and_leaves_the_cluster_as_it_was(
    cluster: RayCluster, mini_runs: MiniRuns
) -> None:
    run = mini_runs.start("joined", "--address", cluster.address, "--nodes", "2", "--steps", "2")
    eventually(
        "word of the first node", lambda: "1 of 2 Ray nodes alive" in run.stderr or run.process.poll() is not None
    )
    assert run.process.poll() is None, run.stderr
    assert not run.events("node.up"), "it did not wait for the second node"
    cluster.add_node()
    summary = run.succeed()
    assert summary["nodes"] == summary["steps"] == 2
    assert sorted(event["name"] for event in run.events("node.up")) == ["node-0", "node-1"]
    assert {event["node"] for event in run.events("episode.finished")} == {"node-0", "node-1"}
    assert_accounting_balances(run.path)
    assert run.list_containers() == []
    pids = [event["pid"] for event in run.events("engine.started")]
    pids += [int(event["incarnation"].partition(".")[0]) for event in run.events("worker.started")]
    assert len(pids) == 3
    eventually("the end of its processes", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)
    assert cluster.alive, "the run ended nodes that are not its own"
