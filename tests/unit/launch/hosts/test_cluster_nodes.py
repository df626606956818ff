"""If these fail, a cluster that is too small or not there leaves the person waiting without a word."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from launch.hosts import cluster_nodes
from launch.hosts.cluster_nodes import (
    ALL_ROLES,
    ROLES_LABEL,
    NodeRole,
    NodesMissingError,
    RayStartError,
    join_cluster_nodes,
    start_local_nodes,
)
from protocol.errors import UserError


class FakeRayCluster:
    """A cluster of ``alive`` nodes, one more at each look, and one that has died."""

    def __init__(self, alive: int) -> None:
        self.alive, self.connected, self.labels = alive, False, dict[str, str]()

    def connect(self, address: str, env: dict[str, str]) -> None:
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def nodes(self) -> list[dict[str, object]]:
        self.alive += 1
        names = [*(f"n{index}" for index in range(self.alive - 1)), "dead"]
        return [self.node(name) for name in names]

    def node(self, name: str) -> dict[str, object]:
        gpus = {"GPU": 2.0} if name == "n1" else {}
        resources = {"CPU": 4.0, **gpus}
        address = self.address(name)
        return {
            "NodeID": name,
            "NodeManagerAddress": address,
            "Alive": name != "dead",
            "Resources": resources,
            "Labels": {ROLES_LABEL: self.labels[name]} if name in self.labels else {},
        }

    def address(self, name: str) -> str:
        return "10.0.0.1"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeRayCluster:
    fake = FakeRayCluster(alive=1)
    monkeypatch.setattr(cluster_nodes, "connect_to_cluster", fake.connect)
    monkeypatch.setattr(cluster_nodes, "disconnect_from_cluster", fake.disconnect)
    monkeypatch.setattr(cluster_nodes, "query_nodes", fake.nodes)
    monkeypatch.setattr(cluster_nodes, "POLL_S", 0.001)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n1"))
    return fake


async def test_the_drivers_node_is_the_head_and_progress_is_reported(cluster: FakeRayCluster) -> None:
    counts: list[int] = []
    async with join_cluster_nodes("head:6379", 3, 30.0, {}, counts.append) as found:
        assert [(node.name, node.ray_id) for node in found] == [("node-0", "n1"), ("node-1", "n0"), ("node-2", "n2")]
        assert [node.gpus for node in found] == [2, 0, 0]
        assert cluster.connected
    assert counts == [1, 2, 3]
    assert not cluster.connected


async def test_too_few_nodes_are_refused_with_their_count_and_how_to_add_more(
    cluster: FakeRayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_nodes, "query_nodes", lambda: cluster.nodes()[:1])
    with pytest.raises(NodesMissingError, match=r"1 of 3 nodes were alive after 0\.05 s.*ray start --address.*--nodes"):
        async with join_cluster_nodes("head:6379", 3, 0.05, {}, lambda _: None):
            pass
    assert not cluster.connected


async def test_nodes_on_other_machines_than_the_drivers_are_known_as_such(
    cluster: FakeRayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise their actors would write into a run directory that is never read."""
    monkeypatch.setattr(cluster, "address", lambda name: f"10.0.0.{name[1:]}")
    async with join_cluster_nodes("head:6379", 2, 30.0, {}, lambda _: None) as found:
        assert [(node.ray_id, node.address, node.remote) for node in found] == [
            ("n1", "10.0.0.1", False),
            ("n0", "10.0.0.0", True),
        ]


async def test_a_label_sets_the_roles_of_a_node(cluster: FakeRayCluster) -> None:
    cluster.alive, cluster.labels = 3, {"n0": "worker", "n2": "engine.worker"}
    async with join_cluster_nodes("head:6379", 3, 30.0, {}, lambda _: None) as found:
        assert [node.roles for node in found] == [ALL_ROLES, {NodeRole.WORKER}, ALL_ROLES]
        assert [node.labelled_roles for node in found] == [frozenset(), {NodeRole.WORKER}, ALL_ROLES]


async def test_an_unknown_role_in_a_label_is_refused_with_a_suggestion(cluster: FakeRayCluster) -> None:
    cluster.alive, cluster.labels = 2, {"n1": "worker.engin"}
    with pytest.raises(UserError, match=r"'engin' is not a role; did you mean 'engine'.*--labels longshore/roles="):
        async with join_cluster_nodes("head:6379", 2, 30.0, {}, lambda _: None):
            pass
    assert not cluster.connected


async def test_nodes_of_this_machine_are_taken_before_those_of_others(
    cluster: FakeRayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.alive = 3
    monkeypatch.setattr(cluster, "address", lambda name: "10.0.0.2" if name == "n0" else "10.0.0.1")
    async with join_cluster_nodes("head:6379", 2, 30.0, {}, lambda _: None) as found:
        assert [node.ray_id for node in found] == ["n1", "n2"]


class SlowRay:
    """Ray on a busy machine: the first ``late`` nodes are given up, and their processes forgotten."""

    def __init__(self, late: int) -> None:
        self.late, self.processes = late, list[subprocess.Popen[bytes]]()

    def __call__(self, *, initialize_head: bool, shutdown_at_exit: bool) -> SlowRay:
        return self

    def add_node(self, *, temp_dir: str, **options: object) -> None:
        sleep = "import time; time.sleep(60)"
        session = f"--session-dir={temp_dir}/session_{len(self.processes)}"
        process = subprocess.Popen([sys.executable, "-S", "-c", sleep, session])
        self.processes.append(process)
        while session.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # on a busy machine its command line follows
        if len(self.processes) <= self.late:
            raise Exception("The current node timed out during startup.")  # noqa: TRY002  what Ray raises


@pytest.fixture
def slow_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRay]:
    fake = SlowRay(late=1)
    monkeypatch.setattr("ray.cluster_utils.Cluster", fake)
    yield fake
    for process in fake.processes:
        process.kill()
        process.wait()


def test_a_slow_start_of_ray_is_retried_after_its_processes_are_killed(slow_ray: SlowRay, tmp_path: Path) -> None:
    assert cluster_nodes.start_ray_cluster(1, tmp_path, 4) is slow_ray
    first, second = slow_ray.processes
    assert first.wait(30) == -signal.SIGKILL
    assert second.poll() is None


class RayThatTakesItsTime:
    """Notes where it would write its address, when it has been told to go on."""

    def __init__(self) -> None:
        self.starting, self.go_on, self.temp_dir, self.ended = threading.Event(), threading.Event(), "", False

    def start(self, count: int, temporary: Path, cpus: int) -> RayThatTakesItsTime:
        self.starting.set()
        self.go_on.wait()
        self.temp_dir = os.environ["RAY_TMPDIR"]
        return self

    address = "127.0.0.1:1"

    def shutdown(self) -> None:
        self.ended = True


async def test_an_interrupt_while_ray_starts_waits_for_it_and_ends_it(
    cluster: FakeRayCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A thread that goes on alone would write its address where every other Ray of this machine looks for one."""
    slow = RayThatTakesItsTime()
    monkeypatch.setattr(cluster_nodes, "start_ray_cluster", slow.start)
    monkeypatch.setattr(cluster_nodes, "connect_to_cluster", lambda address: cluster.connect(address, {}))

    async def use() -> None:
        async with start_local_nodes(1, tmp_path):
            pytest.fail("it was used")

    async with asyncio.TaskGroup() as group:
        using = group.create_task(use())
        await asyncio.to_thread(slow.starting.wait)
        using.cancel()
        await asyncio.sleep(0)
        slow.go_on.set()
    assert slow.temp_dir == str(tmp_path)
    assert slow.ended
    assert not cluster.connected


def test_a_failed_start_of_ray_is_reported_in_one_line_with_the_remedy(slow_ray: SlowRay, tmp_path: Path) -> None:
    slow_ray.late = 4
    with pytest.raises(RayStartError, match=r"4 attempts \(The current node timed out.*--nodes") as caught:
        cluster_nodes.start_ray_cluster(1, tmp_path, 4)
    assert "\n" not in str(caught.value)
    assert [process.wait(30) for process in slow_ray.processes] == [-signal.SIGKILL] * 4
