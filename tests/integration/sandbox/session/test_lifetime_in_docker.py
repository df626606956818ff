"""If these fail, a container outlives its owner, a clean-up removes another owner's, or a loss is reported with the
wrong cause."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files import committed_images
from sandbox.docker.labels import EXPIRES_LABEL, OWNER_LABEL, POOL_LABEL, RUN_LABEL
from sandbox.docker.network.private_networks import list_networks
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.pool.run_orphans import remove_run_orphans
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="life", instruction="")
S = 20.0
ORPHAN_MAKER = """
import asyncio, sys
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.pool.settings import ContainerSettings, PoolSettings
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService

async def main():
    services = (TaskService("web", command=("/.sbx/busybox", "sleep", "600")),) if sys.argv[2:] else ()
    containers = ContainerSettings(heartbeat_timeout_s=1.5)
    async with SandboxPool(PoolSettings(sys.argv[1], "r", 1, containers=containers)) as pool:
        async with pool.acquire(Task(id="t", instruction="", services=services)) as session:
            print(session.container, flush=True)
            await asyncio.sleep(600)

asyncio.run(main())
"""


async def gone(engine: DockerEngine, container: str, within_s: float = 120.0) -> bool:
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if container not in (await engine.inventory()).containers:
            return True
        await asyncio.sleep(0.05)
    return False


def orphaned(*arguments: str) -> str:
    """Return the container of a killed process."""
    program = [sys.executable, "-c", ORPHAN_MAKER, *arguments]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]) as process:
        assert process.stdout is not None
        container = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert len(container) == 64
    return container


async def test_a_container_ends_by_itself_when_its_owner_is_killed(docker_engine: SandboxHost, engine: DockerEngine):
    assert await gone(engine, await asyncio.to_thread(orphaned, f"orphan-{os.getpid()}"))


async def test_services_and_networks_of_a_killed_owner_are_removed(docker_engine: SandboxHost, engine: DockerEngine):
    mine = f"orphan-around-{os.getpid()}"
    await asyncio.to_thread(orphaned, mine, "service")
    containers = {each.id for each in await engine.containers() if each.labels.get(POOL_LABEL) == mine}
    networks = {each.id for each in await list_networks(engine, {POOL_LABEL: mine})}
    assert containers
    assert len(networks) == 1
    async with SandboxPool(PoolSettings(mine, "r", 1), docker_engine) as pool:
        assert pool.statistics().swept >= 2
        after = await engine.inventory()
        assert not after.networks & networks
        assert not after.containers & containers


async def test_a_heartbeat_keeps_a_session_beyond_its_first_deadline(docker_engine: SandboxHost):
    settings = PoolSettings(f"beat-{os.getpid()}", "r", 1, containers=ContainerSettings(heartbeat_timeout_s=1.0))
    async with SandboxPool(settings, docker_engine) as pool, pool.acquire(TASK) as session:
        await session.run("sleep 1.5", S)
        assert (await session.run("echo alive", S)).output == "alive\n"


async def test_a_session_never_passes_its_maximum(pool: SandboxPool):
    async with pool.acquire(TASK, deadline_s=0.6) as session:
        session.extend(60)
        with pytest.raises(SandboxLost, match="deadline"):
            await session.run("sleep 30", S)


async def test_a_clean_up_removes_only_orphaned_or_expired_containers_of_the_same_pool(
    docker_engine: SandboxHost, engine: DockerEngine
):
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: ASYNC220  it starts at once
        dead = owner.owner_of_process(process.pid)
        process.kill()
    mine, other = f"clean-{os.getpid()}", f"clean-other-{os.getpid()}"
    later, past = str(int(time.time()) + 3600), "1000"

    async def create(pool: str, owner_label: str, expires: str) -> str:
        labels = {POOL_LABEL: pool, OWNER_LABEL: owner_label, EXPIRES_LABEL: expires}
        return await engine.create(
            ContainerSpec(docker_engine.base_image, docker_engine.toolchain, labels, ("/.sbx/init",))
        )

    async def copied(container: str) -> str:
        return (await engine.docker.containers.container(container).commit())["Id"]

    orphan, expired = await create(mine, dead, later), await create(mine, "elsewhere/1/2/3", past)
    kept = {
        await create(mine, owner.owner_of_this_process(), later),
        await create(mine, "elsewhere/1/2/3", later),
        await create(other, dead, later),
    }
    remaining_copies, kept_copies = (
        {await copied(each) for each in (orphan, expired)},
        {await copied(each) for each in kept},
    )
    try:
        assert remaining_copies | kept_copies <= (await engine.inventory()).images
        async with SandboxPool(PoolSettings(mine, "r", 1), docker_engine) as pool:
            assert pool.statistics().swept == 4
            there = await engine.inventory()
            assert kept <= there.containers
            assert kept_copies <= there.images
            assert not {orphan, expired} & there.containers
            assert not remaining_copies & there.images
    finally:
        for each in kept:
            await engine.remove(each)
        for each in kept_copies:
            await committed_images.remove_committed_image(engine, each)


async def test_a_dead_runs_container_that_never_started_is_swept(docker_engine: SandboxHost, engine: DockerEngine):
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: ASYNC220  it starts at once
        dead = owner.owner_of_process(process.pid)
        process.kill()
    run = f"killed-{os.getpid()}"
    created = [
        await engine.create(
            ContainerSpec(
                docker_engine.base_image,
                docker_engine.toolchain,
                {RUN_LABEL: run, OWNER_LABEL: owner_label},
                ("/.sbx/init",),
            )
        )
        for owner_label in (dead, owner.owner_of_this_process())
    ]
    try:
        assert await remove_run_orphans(run, for_s=0) == 1
        assert [each.id for each in await engine.containers({RUN_LABEL: run})] == created[1:]
    finally:
        await engine.remove(created[1])


async def test_two_pools_on_one_daemon_do_not_touch_each_other(pool: SandboxPool, docker_engine: SandboxHost):
    async with pool.acquire(TASK) as mine:
        async with (
            SandboxPool(PoolSettings(f"second-{os.getpid()}", "r", 2), docker_engine) as second,
            second.acquire(TASK) as theirs,
        ):
            await second.remove_abandoned()
            await pool.remove_abandoned()
            assert (await theirs.run("echo theirs", S)).output == "theirs\n"
        assert (await mine.run("echo mine", S)).output == "mine\n"


async def test_capacity_bounds_the_live_sessions_and_waiting_ones_are_counted(docker_engine: SandboxHost):
    async with SandboxPool(PoolSettings(f"small-{os.getpid()}", "r", 1), docker_engine) as small:
        order: list[str] = []

        async def second() -> None:
            async with small.acquire(TASK):
                order.append("second")

        async with asyncio.TaskGroup() as group, small.acquire(TASK):
            group.create_task(second())
            await asyncio.sleep(0)
            assert small.statistics()[1:4] == (1, 0, 1)
            order.append("first")
        assert order == ["first", "second"]
        assert small.statistics().started == 2


async def test_a_session_that_is_cancelled_is_removed(pool: SandboxPool, engine: DockerEngine):
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def episode() -> None:
        async with pool.acquire(TASK) as session:
            opened.set_result(session.container)
            await session.run("sleep 1000", 1000)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(episode())
        container = await opened
        running.cancel()
    assert await gone(engine, container)


async def test_a_container_removed_from_outside_is_reported_as_lost_and_not_blamed_on_the_agent(
    pool: SandboxPool, engine: DockerEngine
):
    async with pool.acquire(TASK) as session:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.remove(session.container))
            with pytest.raises(SandboxLost, match="outside"):
                await session.run("sleep 1000", S)
        assert not session.alive
        with pytest.raises(SandboxLost, match="outside"):
            await session.run("true", S)


async def test_memory_that_no_process_holds_kills_neither_pid_1_nor_the_grading(pool: SandboxPool):
    fill = "perl -e '$i=shmget(7,300<<20,0666|01000); for($n=0;$n<300;$n++){shmwrite($i,\"x\"x(1<<20),$n<<20,1<<20)}'"
    task = Task(id="full", instruction="", run_tests="#!/bin/sh\necho short test summary info; echo PASSED a\n")
    async with pool.acquire(task) as session:
        assert (await session.run(fill, S)).exit_code == 137
        assert (await session.run("echo alive", S)).output == "alive\n"
        assert (await grade_sandbox(session, task)).all_passed


async def test_system_v_ipc_objects_are_removed_before_tests_run(pool: SandboxPool):
    """This holds for every owner and every permission."""
    made = "shmget($k,4096,0600|01000); msgget($k,0600|01000); semget($k,9,0600|01000)"
    count = "cat /proc/sysvipc/* | wc -l"
    ask = f'#!/bin/sh\necho short test summary info; [ "$({count})" = 3 ] && echo PASSED a || echo FAILED a\n'
    task = Task(id="kept", instruction="", run_tests=ask)
    async with pool.acquire(task) as session:
        for user in (0, 1000):
            await session.run(f"perl -e '$<=$>={user}; $k={user + 7}; {made}'", S)
        assert (await session.run(count, S)).output == "9\n"
        assert (await grade_sandbox(session, task)).all_passed


@pytest.mark.parametrize(
    "task",
    [
        Task(id="bad-setup", instruction="", setup="echo why; exit 7"),
        Task(id="bad-image", instruction="", image="127.0.0.1:9/never-built:0"),
        Task(id="bad-file", instruction="", files={"/proc/no/such": b""}),
    ],
    ids=lambda task: task.id,
)
async def test_a_failure_before_the_agent_starts_is_a_start_error_and_leaves_nothing_behind(
    pool: SandboxPool, task: Task
):
    live = pool.statistics().live
    with pytest.raises(SandboxStartError):
        async with pool.acquire(task):
            pass
    assert pool.statistics().live == live


async def test_a_start_that_takes_too_long_is_a_start_error_and_leaves_nothing_behind(docker_engine: SandboxHost):
    settings = PoolSettings(f"slow-{os.getpid()}", "r", 1, containers=ContainerSettings(start_timeout_s=0.001))
    async with SandboxPool(settings, docker_engine) as slow:
        with pytest.raises(SandboxStartError, match="start_timeout_s"):
            async with slow.acquire(TASK):
                pass
    async with DockerEngine(docker_engine.docker_url) as engine:
        assert not await engine.containers({POOL_LABEL: settings.name})
