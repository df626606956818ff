"""An agent that writes without end.  If these fail, it fills its host's disk."""

from __future__ import annotations

import pytest

from sandbox.disk import DiskBound, probe
from sandbox.engine import ContainerSpec, DockerEngine, EngineError
from sandbox.errors import Ruin, SandboxDestroyed
from sandbox.host import Host
from sandbox.pool import SandboxPool
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
SMALL = Task(id="disk", instruction="", storage_mb=20)
S = 60.0
FILL = "for i in $(seq 1 30); do head -c 1000000 /dev/zero > f$i; done"


async def bound_of(engine: DockerEngine, host: Host) -> DiskBound:
    return await probe(engine, ContainerSpec(host.base_image, host.kit, {}, ("/.sbx/init",)))


async def test_the_host_says_by_what_means_it_bounds_the_disk_and_leaves_nothing(
    engine: DockerEngine, docker_engine: Host
):
    bound = await bound_of(engine, docker_engine)
    spec = ContainerSpec(docker_engine.base_image, docker_engine.kit, {}, ("/.sbx/init",), disk_quota=True)
    if bound.by_daemon:
        await engine.remove(await engine.create(spec))
    else:
        with pytest.raises(EngineError):
            await engine.create(spec)


async def test_a_sandbox_that_is_watched_ends_when_it_has_written_too_much_and_the_agent_did_it(
    pool: SandboxPool, engine: DockerEngine, docker_engine: Host
):
    if await bound_of(engine, docker_engine) is not DiskBound.WATCH:
        pytest.skip("this host has better means than the watch, or none")
    async with pool.acquire(SMALL) as session:
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB") as caught:
            await session.run(f"{FILL}; sleep 1000", S)
        assert caught.value.how is Ruin.DISK


async def test_a_write_beyond_a_quota_fails_inside_and_the_sandbox_lives(
    pool: SandboxPool, engine: DockerEngine, docker_engine: Host
):
    if await bound_of(engine, docker_engine) is not DiskBound.XFS_QUOTA:
        pytest.skip("the daemon's storage has no project quotas")
    async with pool.acquire(SMALL) as session:
        assert "No space left" in (await session.run(FILL, S)).output
        assert (await session.run("rm f*; echo alive", S)).output == "alive\n"


async def test_a_sandbox_within_its_limit_lives_on_and_what_it_removes_counts_no_more(pool: SandboxPool):
    async with pool.acquire(SMALL) as session:
        for _ in range(3):
            await session.run("head -c 9000000 /dev/zero > f; sync f", S)
            await session.run("rm f", S)
        assert (await session.run("echo alive", S)).output == "alive\n"
