"""If this fails, an engine that executes programs in the root of its machine, instead of in a container, is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.execution import leaves_container
from sandbox.host_record import SandboxHost

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_trial_finds_whether_what_is_executed_runs_in_the_container(
    docker_engine: SandboxHost, tmp_path: Path, leaves: bool
):
    """A folder without the program stands for the root of the machine, which has no such program either."""
    toolchain = tmp_path if leaves else docker_engine.toolchain
    own = {"longshore.test": tmp_path.name}
    spec = ContainerSpec(docker_engine.base_image, toolchain, own, ("sleep", "60"))
    async with DockerEngine(docker_engine.docker_url) as engine:
        assert await leaves_container(engine, spec) is leaves
        assert not await engine.containers(own)
