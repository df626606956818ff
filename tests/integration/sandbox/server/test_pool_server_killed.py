"""If these fail, killing a pool server costs every agent its terminal, runs a command twice, or leaves containers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from protocol.processes.loopback import find_free_port
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import OWNER_LABEL, POOL_LABEL
from sandbox.docker.network.private_networks import list_networks
from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.errors import SandboxLost
from sandbox.host_record import SandboxHost
from sandbox.providers.remote import RemotePool
from sandbox.server.journal import StateDirectory
from sandbox.session.init_connection.init_command import init_command
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

pytestmark = [pytest.mark.docker, pytest.mark.chaos, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(
    id="killed", instruction="", run_tests="#!/bin/sh\necho short test summary info; [ -f /app/a ] && echo PASSED a\n"
)
S = 30.0
WEB = TaskService("web", command=("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/etc"), healthcheck="true")
GET = "(exec 3<>/dev/tcp/%s; printf 'GET %s HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3) 2>&1"
ASK_WEB = GET % ("web/8000", "/hostname") + " | tail -n 1"
ASK_GATE = GET % (f"{PROXY_HOST}/{PROXY_PORT}", "http://nowhere.example/")
ROOT = Path(__file__).parents[4]


class PoolServerProcess:
    """``longshore server``, which can be started several times."""

    def __init__(self, state: Path) -> None:
        self.state, self.port = state, find_free_port()
        self.pool = f"pool-server-{StateDirectory(state).id}"
        self.url = f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandbox.server", "--port", str(self.port), "--state", str(self.state),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            async with asyncio.timeout(120):
                assert (await process.stdout.readline()).decode().strip() == f"{self.url}/"
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(120):
                await process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def server(tmp_path: Path, docker_engine: SandboxHost, engine: DockerEngine) -> AsyncGenerator[PoolServerProcess]:
    made = PoolServerProcess(tmp_path)
    yield made
    assert not await engine.containers({POOL_LABEL: made.pool})
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".jsonl")]  # noqa: PTH208  it is async here


async def test_a_lease_goes_on_in_the_same_shell(
    server: PoolServerProcess, docker_engine: SandboxHost, engine: DockerEngine
):
    async with RemotePool(server.url, acquire_s=60.0, unreachable_s=120.0) as pool:
        async with server.running() as first:
            sandbox = await pool.open(TASK)
            await sandbox.run("cd /tmp; a=5", S)
            first.kill()
        labels = {POOL_LABEL: server.pool, OWNER_LABEL: f"server:{server.pool}"}
        orphan = await engine.create(
            ContainerSpec(docker_engine.base_image, docker_engine.toolchain, labels, init_command(60, 60, "/"))
        )
        async with server.running():
            there = {each.id for each in await engine.containers({POOL_LABEL: server.pool})}
            assert len(there) == 1
            assert orphan not in there
            assert (await sandbox.run("echo $a; pwd", S)).output == "5\n/tmp\n"
            await sandbox.run("touch /app/a", S)
            assert (await sandbox.grade()).all_passed
            await sandbox.close()


async def test_a_command_under_way_is_never_run_again(server: PoolServerProcess):
    async with RemotePool(server.url, acquire_s=60.0, unreachable_s=120.0) as pool, asyncio.TaskGroup() as group:
        async with server.running() as first:
            sandbox = await pool.open(TASK)
            running = group.create_task(_lost(sandbox.run("echo once >> /tmp/log; sleep 1000", 600.0)))
            async with asyncio.timeout(60):
                while not await _there(sandbox.read_file("/tmp/log")):  # noqa: ASYNC110  seen from outside only
                    await asyncio.sleep(0.05)
            first.kill()
        async with server.running():
            assert "not done a second time" in await running
            done = await sandbox.run("cat /tmp/log", S)
            assert done.output.endswith("once\n")
            assert done.output.count("once") == 1
            await sandbox.close()


async def test_services_and_networks_are_taken_over_and_those_of_lost_leases_are_removed(
    server: PoolServerProcess, engine: DockerEngine
):
    task = replace(TASK, services=(WEB,), network=TaskNetwork(agent=NetworkMode.PROXY))
    async with RemotePool(server.url, acquire_s=60.0, unreachable_s=120.0) as pool:
        async with server.running() as first:
            kept, lost = await pool.open(task), await pool.open(task)
            before = await list_networks(engine, {POOL_LABEL: server.pool})
            host = (await lost.run("hostname; cat /proc/1/cpuset", S)).output
            first.kill()
        for each in await engine.containers({POOL_LABEL: server.pool}):
            if each.id in host:
                await engine.remove(each.id)
        async with server.running():
            after = await list_networks(engine, {POOL_LABEL: server.pool})
            assert (len(before), len(after)) == (2, 1)
            assert len(await engine.containers({POOL_LABEL: server.pool})) == 2
            assert (await kept.run(ASK_WEB, S)).output.strip() == "web"
            assert "403" in (await kept.run(ASK_GATE, S)).output
            with pytest.raises(SandboxLost):
                await lost.run("true", S)
            await kept.close()
            await lost.close()
    assert not await list_networks(engine, {POOL_LABEL: server.pool})


async def test_a_server_that_is_stopped_leaves_nothing(server: PoolServerProcess):
    async with RemotePool(server.url, acquire_s=60.0, unreachable_s=1.0) as pool:
        async with server.running() as process:
            await pool.open(TASK)
        assert process.returncode == 0


async def _lost(work) -> str:
    with pytest.raises(SandboxLost) as caught:
        await work
    return str(caught.value)


async def _there(reading) -> bool:
    try:
        return bool(await reading)
    except FileNotFoundError:
        return False
