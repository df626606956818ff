"""One pool on the real Docker daemon for all of these tests, and a check at the end that nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(docker_engine: SandboxHost) -> AsyncGenerator[DockerEngine]:
    async with DockerEngine(docker_engine.docker_url) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(docker_engine: SandboxHost, engine: DockerEngine) -> AsyncGenerator[SandboxPool]:
    name = f"test-{os.getpid()}"
    before = await engine.inventory()
    async with SandboxPool(PoolSettings(name=name, run_id="test", capacity=8), docker_engine) as opened:
        yield opened
    after = await engine.inventory()
    assert not await engine.containers({POOL_LABEL: name}), "containers leaked"
    assert after.volumes <= before.volumes, "volumes leaked"
    assert after.networks <= before.networks, "networks leaked"


@pytest.fixture
def verifier_half(docker_engine: SandboxHost) -> None:
    if not (docker_engine.toolchain / "verify").exists():
        pytest.skip("the toolchain has no verifier half here: longshore toolchain build says why")
