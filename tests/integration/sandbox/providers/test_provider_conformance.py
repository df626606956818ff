"""If these fail, a sandbox behaves differently behind the server or the router than in the library."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import Sandbox, SandboxProvider, open_sandbox
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.network.http_servers import provider_of_pool
from tests.support.sandbox.provider_cases import CASES, TASK, S

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["local", pytest.param("server", marks=pytest.mark.slow), "router"]
)
async def provider(request: pytest.FixtureRequest, docker_engine: SandboxHost) -> AsyncGenerator[SandboxProvider]:
    settings = PoolSettings(f"conform-{request.param}-{os.getpid()}", "test", 4)
    async with SandboxPool(settings, docker_engine) as pool, provider_of_pool(pool, request.param) as provider:
        yield provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(provider: SandboxProvider) -> AsyncGenerator[Sandbox]:
    async with open_sandbox(provider, TASK) as opened:
        yield opened


async def test_there_are_at_least_forty_cases():
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
async def test_the_provider_keeps_the_sandbox_contract(sandbox: Sandbox, name: str):
    await CASES[name](sandbox)


async def test_grading_tells_right_from_wrong(provider: SandboxProvider):
    for command, ratio in (("true", 0.5), ("touch /app/done", 1.0)):
        async with open_sandbox(provider, TASK) as fresh:
            await fresh.run(command, S)
            graded = await fresh.grade()
            assert (graded.pass_ratio, graded.all_passed) == (ratio, ratio == 1.0)
            assert [test.name for test in graded.tests] == ["one", "two"]


async def test_a_closed_sandbox_is_lost_and_closing_twice_is_no_error(provider: SandboxProvider):
    async with open_sandbox(provider, TASK) as fresh:
        await fresh.close()
        assert not fresh.alive
        with pytest.raises(SandboxLost):
            await fresh.run("true", S)


async def test_two_sandboxes_share_nothing(provider: SandboxProvider):
    async with open_sandbox(provider, TASK) as one, open_sandbox(provider, TASK) as other:
        await one.run("echo one > /tmp/mine; a=one", S)
        assert (await other.run("cat /tmp/mine 2>/dev/null; echo $a", S)).output == "\n"


async def test_a_task_that_cannot_start_raises_a_sandbox_start_error(provider: SandboxProvider):
    nowhere = Task(id="none", instruction="", image="127.0.0.1:9/absent:0")  # nobody serves a registry there
    for task in (Task(id="bad", instruction="", setup="exit 7"), nowhere):
        with pytest.raises(SandboxStartError):
            await provider.open(task)


async def test_a_task_gets_its_services_and_its_network_wherever_it_runs(provider: SandboxProvider):
    web = TaskService("web", command=("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/etc"), healthcheck="true")
    get = "(exec 3<>/dev/tcp/%s; printf 'GET %s HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3) 2>&1"
    ask_web, ask_gate = get % ("web/8000", "/hostname"), get % (f"{PROXY_HOST}/{PROXY_PORT}", "http://nowhere.example/")
    tests = (
        f'[[ "$({ask_web} | tail -n 1)" == web ]] && echo PASSED web; [[ "$({ask_gate})" != *403* ]] && echo PASSED no'
    )
    task = Task(
        id="around",
        instruction="",
        services=(web,),
        network=TaskNetwork(agent=NetworkMode.PROXY),
        run_tests=f"#!/bin/bash\necho short test summary info; {tests}\n",
        expected_tests=("web", "no"),
    )
    async with open_sandbox(provider, task) as fresh:
        assert (await fresh.run(f"{ask_web} | tail -n 1", S)).output.strip() == "web"
        assert "403" in (await fresh.run(ask_gate, S)).output
        assert (await fresh.grade()).all_passed


async def test_an_agent_that_uses_up_its_memory_is_blamed_for_it(provider: SandboxProvider):
    """It may also survive; it must not count as infrastructure."""
    async with open_sandbox(provider, TASK) as fresh:
        try:
            await fresh.run("kill -9 -1; head -c 300M /dev/zero | tail", S)
            assert (await fresh.run("echo alive", S)).output.endswith("alive\n")
        except SandboxDestroyed:
            assert not fresh.alive
