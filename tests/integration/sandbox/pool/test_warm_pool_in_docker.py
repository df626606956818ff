"""If these fail, episodes wait although a container could be ready, or get a dead container or another episode's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
import pytest_asyncio

from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.errors import SandboxLost
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="warm", instruction="", files={"/app/a": b"mine\n"}, setup="echo set-up > /app/b")
OTHER = replace(TASK, id="other", memory_mb=300)
S = 20.0


@pytest_asyncio.fixture(loop_scope="session")
async def warm(docker_engine: SandboxHost, engine: DockerEngine) -> AsyncGenerator[SandboxPool]:
    settings = PoolSettings(f"warm-{os.getpid()}", "test", 2, warm_max_age_s=30.0)
    async with SandboxPool(settings, docker_engine) as pool:
        await pool.prewarm(TASK, 2)
        assert pool.statistics().warm == 2
        yield pool
    assert not await engine.containers({POOL_LABEL: settings.name})


async def test_a_warm_sandbox_is_set_up_for_its_task_and_handed_out_once(warm: SandboxPool):
    async with warm.acquire(TASK) as one, warm.acquire(TASK) as two:
        assert warm.statistics().warm_hits == 2
        assert warm.statistics().started == 2
        assert one.container != two.container
        assert (await one.run("cat a b; pwd", S)).output == "mine\nset-up\n/app\n"


async def test_a_warm_sandbox_makes_room_for_another_kind(warm: SandboxPool):
    async with asyncio.timeout(60), warm.acquire(OTHER) as other, warm.acquire(TASK):
        assert (await other.run("echo alive", S)).output == "alive\n"
        assert warm.statistics().warm_hits == 1


async def test_a_warm_sandbox_that_died_is_not_handed_out(warm: SandboxPool, engine: DockerEngine):
    for each in await engine.containers({POOL_LABEL: warm.settings.name}):
        await engine.remove(each.id)
    async with warm.acquire(TASK) as session:
        assert (await session.run("echo alive", S)).output == "alive\n"
    assert warm.statistics().warm_hits == 0


async def test_a_warm_sandbox_lives_no_longer_than_its_task_may(warm: SandboxPool):
    async with warm.acquire(TASK, deadline_s=0.5) as session:
        with pytest.raises(SandboxLost, match="deadline"):
            await session.run("sleep 30", S)


async def test_the_warm_pool_can_be_refilled_while_a_sandbox_is_in_use(docker_engine: SandboxHost):
    settings = PoolSettings(f"refill-{os.getpid()}", "test", 4, warm_per_kind=1)
    async with SandboxPool(settings, docker_engine) as pool:
        async with pool.acquire(TASK):
            await pool.prewarm(TASK, 1)
            assert pool.statistics().warm == 1
        async with pool.acquire(TASK):
            assert pool.statistics().warm_hits == 1


async def test_the_tasks_own_variables_are_in_its_shell(docker_engine: SandboxHost):
    coloured = replace(TASK, env={"COLOUR": "blue"})
    settings = PoolSettings(f"env-{os.getpid()}", "test", 1)
    async with SandboxPool(settings, docker_engine) as pool, pool.acquire(coloured) as session:
        assert (await session.run("echo $COLOUR", S)).output == "blue\n"
