"""If these fail, an engine that accepts a disk limit and does not hold it is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.loop_disk import upper_layer_of
from sandbox.host_record import HostSettings, SandboxHost, current_host, write_host_record
from sandbox.pool.disk_bound import DiskBound, probe_disk_bound
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task

SPEC = ContainerSpec("image", Path("/toolchain"), {})


class FakeContainerdStore:
    """An engine with containerd's image store: it takes a quota, and shows no layer before a container runs."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.removed: list[str] = []

    async def info(self) -> dict[str, Any]:
        return {"Driver": "overlayfs", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}

    async def create(self, spec: ContainerSpec) -> str:
        assert not spec.disk_quota, "it would seem to be held"
        return "c"

    async def start(self, container: str) -> None:
        self.started.append(container)

    async def inspect(self, _: str) -> dict[str, Any]:
        return {"GraphDriver": None, "State": {"Pid": 0}}

    async def remove(self, container: str) -> None:
        self.removed.append(container)


async def test_a_quota_is_not_believed_of_a_store_that_ignores_it():
    engine: Any = FakeContainerdStore()
    assert await probe_disk_bound(engine, SPEC) is DiskBound.FILE_SIZE
    assert engine.started == engine.removed == ["c"]


@pytest.mark.slow
@pytest.mark.docker
async def test_a_layer_that_the_engine_does_not_name_is_found_by_the_containers_mounts(docker_engine: SandboxHost):
    async with (
        SandboxPool(PoolSettings("test-layers", "test", 1), docker_engine) as pool,
        pool.acquire(Task("t", "")) as session,
        DockerEngine(docker_engine.docker_url) as engine,
    ):
        described = await engine.inspect(session.container)
        named = upper_layer_of(described)
        if named is None or not named.exists():
            pytest.skip("this engine names no layer on this machine")
        found = upper_layer_of(described | {"GraphDriver": None})
        assert found is not None
        assert found.samefile(named)


def test_docker_host_goes_before_the_engine_of_the_set_up(tmp_path: Path):
    """Otherwise `tasks validate --run` proves tasks on another engine than the one named."""
    recorded = SandboxHost("unix:///recorded.sock", "base", tmp_path / "toolchain", "1:2")
    write_host_record(HostSettings(tmp_path), recorded)
    assert current_host(HostSettings(tmp_path)) == recorded
    assert current_host(HostSettings(tmp_path, docker_url=recorded.docker_url)) == recorded
    named = current_host(HostSettings(tmp_path, docker_url="unix:///named.sock"))
    assert (named.docker_url, named.engine_owner, named.base_image) == ("unix:///named.sock", "", "base")
