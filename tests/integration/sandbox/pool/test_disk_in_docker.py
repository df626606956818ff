"""If these fail, an agent that writes without end fills its host's disk."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL, SERVICE_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import DestructionCause, SandboxDestroyed
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.networking.service_requests import SERVICE_LIMITS
from sandbox.pool import disk_watch
from sandbox.pool.disk_bound import DiskBound, probe_disk_bound
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService
from sandbox.tasks.task_grading import GradingLevel

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
SMALL = Task(id="disk", instruction="", storage_mb=20)
S = 60.0
FILL = "for i in $(seq 1 30); do head -c 1000000 /dev/zero > f$i; done"


async def bound_of(engine: DockerEngine, host: SandboxHost) -> DiskBound:
    return await probe_disk_bound(engine, ContainerSpec(host.base_image, host.toolchain, {}, ("/.sbx/init",)))


async def test_the_reported_disk_bound_matches_the_behaviour_of_the_daemon(
    engine: DockerEngine, docker_engine: SandboxHost
):
    bound = await bound_of(engine, docker_engine)
    spec = ContainerSpec(docker_engine.base_image, docker_engine.toolchain, {}, ("/.sbx/init",), disk_quota=True)
    try:
        await engine.remove(await engine.create(spec))
        takes_quota = True
    except DockerEngineError:
        takes_quota = False
    ignores_quota = "io.containerd.snapshotter.v1" in str((await engine.info())["DriverStatus"])
    assert bound.enforced_by_daemon == (takes_quota and not ignores_quota)


async def test_a_watched_sandbox_that_writes_too_much_is_destroyed_and_the_agent_is_blamed(
    pool: SandboxPool, engine: DockerEngine, docker_engine: SandboxHost
):
    if await bound_of(engine, docker_engine) is not DiskBound.WATCH:
        pytest.skip("this host has better means than the watch, or none")
    async with pool.acquire(SMALL) as session:
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB") as caught:
            await session.run(f"{FILL}; sleep 1000", S)
        assert caught.value.cause is DestructionCause.DISK


async def test_a_write_beyond_a_quota_fails_inside_and_the_sandbox_lives(
    pool: SandboxPool, engine: DockerEngine, docker_engine: SandboxHost
):
    if await bound_of(engine, docker_engine) is not DiskBound.XFS_QUOTA:
        pytest.skip("the daemon's storage has no project quotas")
    async with pool.acquire(SMALL) as session:
        assert "No space left" in (await session.run(FILL, S)).output
        assert (await session.run("rm f*; echo alive", S)).output == "alive\n"


def mounts() -> set[str]:
    """Return the mount points of loop devices."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return {line.split()[1] for line in lines if line.startswith("/dev/loop")}


async def test_a_loop_disk_fills_up_inside_and_is_removed_with_its_sandbox(
    engine: DockerEngine, docker_engine: SandboxHost
):
    like = ContainerSpec(docker_engine.base_image, docker_engine.toolchain, {}, ("/.sbx/init",))
    if await probe_disk_bound(engine, like, loop=True) is not DiskBound.LOOP:
        pytest.skip("no file system can be mounted under the daemon's folder here, or the daemon has a quota")
    before = mounts()
    task = replace(SMALL, run_tests="#!/bin/sh\necho short test summary info; [ -e /app/a ] && echo PASSED a\n")
    async with SandboxPool(PoolSettings(f"loop-{os.getpid()}", "test", 2, disk_loop=True), docker_engine) as pool:
        assert pool.disk_bound is DiskBound.LOOP
        async with pool.acquire(task) as session:
            assert len(mounts() - before) == 1
            assert "No space left" in (await session.run(FILL, S)).output
            assert "No space left" in (await session.run("rm f*; seq 4000 | xargs touch", S)).output
            assert (await session.run("rm -f *; touch a; echo alive", S)).output == "alive\n"
            for level in (GradingLevel.SAME, GradingLevel.COMMIT):
                assert (await grade_sandbox(session, replace(task, grading=level))).all_passed
            copy = await pool.fork(session)
            assert (await copy.run("ls /app", S)).output == "a\n"
            await pool.close(copy)
    assert mounts() == before


async def test_removed_files_no_longer_count_towards_the_disk_limit(pool: SandboxPool):
    async with pool.acquire(SMALL) as session:
        for _ in range(3):
            await session.run("head -c 9000000 /dev/zero > f; sync f", S)
            await session.run("rm f", S)
        assert (await session.run("echo alive", S)).output == "alive\n"


@pytest.mark.parametrize("disk_loop", [False, True], ids=["layer", "disk of its own"])
async def test_files_that_the_daemon_mounts_into_a_sandbox_count_towards_the_disk_limit(
    docker_engine: SandboxHost, disk_loop: bool
):
    settings = PoolSettings(f"mounted-{os.getpid()}", "test", 2, disk_loop=disk_loop)
    async with SandboxPool(settings, docker_engine) as pool, pool.acquire(SMALL) as session:
        if pool.disk_bound is DiskBound.FILE_SIZE:
            pytest.skip("this host cannot see what its sandboxes write")
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB"):
            await session.run("head -c 30000000 /dev/zero > /etc/hostname; sleep 1000", S)


@pytest.mark.slow
async def test_empty_files_and_files_written_by_tests_count_towards_the_disk_limit(
    pool: SandboxPool, engine: DockerEngine, docker_engine: SandboxHost
):
    if await bound_of(engine, docker_engine) is not DiskBound.WATCH:
        pytest.skip("this host has better means than the watch, or none")
    async with pool.acquire(SMALL) as session:
        with pytest.raises(SandboxDestroyed, match="each file counts"):
            await session.run("seq 8000 | xargs touch; sleep 1000", S)
    filling = replace(SMALL, run_tests=f"#!/bin/sh\ncd /app; {FILL}; sleep 1000\n", grading=GradingLevel.COMMIT)
    async with pool.acquire(filling) as session:
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB"):
            await grade_sandbox(session, filling, S)


@pytest.mark.slow
async def test_deleted_open_files_and_files_on_a_volume_count_towards_the_disk_limit(
    pool: SandboxPool, engine: DockerEngine, docker_engine: SandboxHost
):
    if await bound_of(engine, docker_engine) is not DiskBound.WATCH:
        pytest.skip("this host has better means than the watch, or none")
    nameless = (
        "for n in 1 2 3; do (exec 3> /app/$n; rm /app/$n; head -c 9000000 /dev/zero >&3; sleep 1000) & done; wait"
    )
    async with pool.acquire(SMALL) as session:
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB"):
            await session.run(nameless, S)
    build = ImageBuild({"Dockerfile": f"FROM {docker_engine.base_image}\nVOLUME /data\n".encode()})
    async with pool.acquire(replace(SMALL, build=build)) as session:
        with pytest.raises(SandboxDestroyed, match="disk limit of 20 MiB"):
            await session.run("head -c 30000000 /dev/zero > /data/big; sleep 1000", S)


@pytest.mark.slow
async def test_a_service_beyond_its_disk_limit_is_stopped_and_named_and_the_agent_is_not_blamed(
    pool: SandboxPool, engine: DockerEngine, docker_engine: SandboxHost, monkeypatch: pytest.MonkeyPatch
):
    if await bound_of(engine, docker_engine) not in (DiskBound.WATCH, DiskBound.LOOP):
        pytest.skip("this host's quotas hold a service, or nothing does")
    monkeypatch.setattr(disk_watch, "SERVICE_LIMITS", replace(SERVICE_LIMITS, disk_bytes=20 << 20))
    full = TaskService("db", command=("sh", "-c", "head -c 30000000 /dev/zero > /data; sleep 1000"))
    other = TaskService("web", command=("sleep", "1000"))
    tests = "#!/bin/sh\necho short test summary info; echo PASSED a\n"
    task = replace(SMALL, storage_mb=1000, services=(full, other), run_tests=tests)
    async with pool.acquire(task) as session, asyncio.timeout(S):
        containers = await engine.containers({POOL_LABEL: pool.settings.name, SERVICE_LABEL: "db"})
        ended = await asyncio.create_subprocess_exec(
            *("docker", "--host", docker_engine.docker_url, "wait", *(each.id for each in containers)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await ended.wait()
        assert await engine.containers({POOL_LABEL: pool.settings.name, SERVICE_LABEL: "web"})
        assert (await session.run("echo alive", S)).output == "alive\n"
        graded = await grade_sandbox(session, task)
    assert graded.all_passed
    assert re.search(r"service db was stopped: it wrote \d+ MiB, more than its disk limit of 20 MiB", graded.log)
