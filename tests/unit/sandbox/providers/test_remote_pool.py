"""If these fail, a trainer abandons its episodes too early, or keeps waiting for dead sandboxes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from protocol.errors import UserError
from sandbox.errors import (
    BuildError,
    ImageError,
    SandboxDestroyed,
    SandboxLost,
    SandboxStartError,
    SandboxVanished,
    TaskFault,
)
from sandbox.grading.grader import max_grading_s
from sandbox.http.auth import Access
from sandbox.http.task_codec import MAX_FILES, TaskRefused
from sandbox.pool.leases import LeaseLimits
from sandbox.providers.interface import open_sandbox
from sandbox.providers.remote import RemotePool
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server, serving

TASK = Task(id="t", instruction="x")
ONE = LeaseLimits(tasks=1, runs_per_task=1)


async def test_a_full_server_is_retried_after_its_stated_delay(tmp_path: Path):
    async with pool_server(FakeProvider(), tmp_path, ONE) as (url, _), RemotePool(url, acquire_s=60.0) as pool:
        first = await pool.open(TASK)
        async with asyncio.TaskGroup() as group:
            second = group.create_task(pool.open(TASK))
            await asyncio.sleep(0.1)
            assert not second.done()
            await first.close()
        assert second.result().alive


async def test_a_server_that_stays_full_is_abandoned_in_time(tmp_path: Path):
    async with pool_server(FakeProvider(), tmp_path, ONE) as (url, _), RemotePool(url, acquire_s=0.5) as pool:
        await pool.open(TASK)
        with pytest.raises(SandboxStartError, match="provided no sandbox"):
            await pool.open(TASK)


async def test_files_of_a_task_and_of_a_sandbox_pass_up_to_their_bound_and_no_further(tmp_path: Path):
    files = {f"a/{number}": b"x" for number in range(MAX_FILES)}
    most = replace(TASK, files={f"/{path}": data for path, data in files.items()}, tests=files, solution_files=files)
    many = {f"/b/{number}": b"x" for number in range(25_001)}
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (url, _), RemotePool(url, acquire_s=60.0) as pool:
        sandbox = await pool.open(most)
        await sandbox.write_files(many)
        assert provider.opened[0].files.items() >= many.items()
        with pytest.raises(TaskRefused, match="has 30,001 files, and may have 30,000"):
            await pool.open(replace(most, tests={**files, "one more": b""}))
        with pytest.raises(TaskRefused, match="more than 200,000"):
            await pool.open(replace(TASK, expected_tests=("test",) * 200_000))
    assert len(provider.opened) == 1


async def test_the_background_heartbeat_keeps_an_idle_lease(tmp_path: Path):
    """OpenClaw's client sends one only before a tool call: the lease expires while the model thinks."""
    seconds, limits = [0.0], LeaseLimits(ttl_s=1.0)
    async with (
        pool_server(FakeProvider(), tmp_path, limits, now=lambda: seconds[0], expiry_check_s=0.01) as (url, service),
        RemotePool(url, acquire_s=60.0) as pool,
    ):
        sandbox = await pool.open(TASK)
        for _ in range(4):
            seconds[0] += 0.9
            async with asyncio.timeout(30):
                while service.table.get(sandbox.lease_id).deadline < seconds[0] + 1.0:  # noqa: ASYNC110  not told here
                    await asyncio.sleep(0.01)
        assert not service.reaped
        assert (await sandbox.run("x", 5)).output == "x\n"


async def test_leases_of_a_client_that_stopped_are_reaped(tmp_path: Path):
    provider, limits = FakeProvider(), LeaseLimits(ttl_s=0.3)
    async with pool_server(provider, tmp_path, limits, expiry_check_s=0.05) as (url, service):
        async with RemotePool(url, acquire_s=60.0) as pool:
            await pool.open(TASK)
        async with asyncio.timeout(30):
            while provider.running:  # noqa: ASYNC110  seen from outside only
                await asyncio.sleep(0.02)
        assert service.reaped == 1


async def test_a_lost_reply_is_requested_again_and_the_command_runs_once(tmp_path: Path):
    provider = FakeProvider()
    async with (
        pool_server(provider, tmp_path) as (url, _),
        CuttingProxy(url) as proxy,
        RemotePool(proxy.url, acquire_s=60.0) as pool,
        open_sandbox(pool, TASK) as sandbox,
    ):
        proxy.cut = 2
        assert (await sandbox.run("pay", 5)).output == "pay\n"
        assert proxy.cut == 0
        assert provider.opened[0].calls == ["pay"]


@pytest.mark.parametrize("error", [SandboxLost("a"), SandboxVanished("b"), SandboxDestroyed("c")], ids=repr)
async def test_the_type_of_a_sandbox_loss_reaches_the_client(tmp_path: Path, error: Exception):
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (url, _), RemotePool(url, acquire_s=60.0) as pool:
        for ask in (lambda box: box.run("x", 5), lambda box: box.call_tool("shell_exec", {}), lambda box: box.grade()):
            sandbox = await pool.open(TASK)
            provider.opened[-1].error = error
            with pytest.raises(type(error)) as caught:
                await ask(sandbox)
            assert type(caught.value) is type(error)
            assert not sandbox.alive


@pytest.mark.parametrize(
    "error",
    [SandboxStartError("a"), ImageError("b"), TaskFault("c"), BuildError("d"), UserError("e"), TaskRefused("f")],
    ids=repr,
)
async def test_the_type_of_a_start_failure_reaches_the_client(tmp_path: Path, error: Exception):
    """Otherwise a task that can never start counts as infrastructure, and is tried again."""
    kinds = (BuildError, TaskFault, SandboxStartError, UserError)
    provider = FakeProvider(open_error=error)
    async with pool_server(provider, tmp_path) as (url, service), RemotePool(url, acquire_s=60.0) as pool:
        with pytest.raises(Exception, match=str(error)) as caught:
            await pool.open(TASK)
        assert type(caught.value) is next(kind for kind in kinds if isinstance(error, kind))
        assert len(service.table) == 0


async def test_an_unreachable_server_is_an_infrastructure_failure(tmp_path: Path):
    async with RemotePool("http://127.0.0.1:9", acquire_s=60.0, unreachable_s=0.2) as pool:
        with pytest.raises(SandboxStartError, match="provided no sandbox"):
            await pool.open(TASK)
    async with AsyncExitStack() as stack:
        async with pool_server(FakeProvider(), tmp_path) as (url, _):
            pool = await stack.enter_async_context(RemotePool(url, acquire_s=60.0, unreachable_s=0.2))
            sandbox = await pool.open(TASK)
        with pytest.raises(SandboxLost, match="does not answer"):
            await sandbox.run("x", 5)
        await sandbox.close()


async def test_a_deadline_also_ends_the_session_at_the_client(tmp_path: Path):
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (url, _), RemotePool(url, acquire_s=60.0) as pool:
        sandbox = await pool.open(TASK, deadline_s=1.0)
        provider.opened[0].may_finish = asyncio.Event()
        with pytest.raises(SandboxLost, match="deadline"):
            await sandbox.run("x", 60)
        assert not sandbox.alive


@pytest.mark.parametrize("behind_a_router", [False, True])
async def test_the_pool_server_ends_a_request_at_its_deadline_before_the_client_does(
    tmp_path: Path, behind_a_router: bool
):
    """Otherwise a client gives up a running request, and nothing reports its outcome."""
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (worker, _), AsyncExitStack() as stack:
        router = create_app(lambda: RoutedPoolServers((worker,), "", 0.5), Access("127.0.0.1"))
        url = await stack.enter_async_context(serving(router)) if behind_a_router else worker
        pool = await stack.enter_async_context(RemotePool(url, acquire_s=60.0, request_s=1.5))
        sandbox = await pool.open(TASK)
        provider.opened[0].may_finish = asyncio.Event()
        with pytest.raises(SandboxLost, match="504 DEADLINE"):
            await sandbox.call_tool("shell_exec", {"command": "x"})


async def test_request_deadlines_cover_the_longest_command_and_grading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deadlines: dict[str, float] = {}
    real = RemotePool.post_with_retries

    async def ask(self: RemotePool, path: str, body: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any]:
        deadlines[path] = body.get("deadline_s", 0.0)
        return await real(self, path, body, deadline_s)

    monkeypatch.setattr(RemotePool, "post_with_retries", ask)
    long = Task(id="long", instruction="", test_timeout_s=7200.0, grading=GradingLevel.COMMIT)
    async with pool_server(FakeProvider(), tmp_path) as (url, _), RemotePool(url, acquire_s=1800.0) as pool:
        sandbox = await pool.open(long)
        assert 1700 < deadlines["/reset"] <= 1800
        await sandbox.run("x", 3600.0)
        assert deadlines["/run"] > 3600
        await sandbox.grade()
        assert deadlines["/evaluate"] == max_grading_s(long) > 7200
        await sandbox.grade(10.0)
        assert deadlines["/evaluate"] == max_grading_s(long, 10.0) < 7200


@pytest.mark.parametrize("answered", [True, False])
async def test_a_client_cancelled_during_an_allocation_returns_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
):
    """It also stops waiting for a server that does not answer."""
    if not answered:
        monkeypatch.setattr("sandbox.providers.remote.RETURN_SLOT_TIMEOUT_S", 0.01)
    async with (
        pool_server(FakeProvider(), tmp_path) as (url, service),
        CuttingProxy(url) as proxy,
        RemotePool(proxy.url, acquire_s=60.0) as pool,
    ):
        proxy.answers.clear()
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(pool.open(TASK))
            async with asyncio.timeout(30):
                while not len(service.table):  # noqa: ASYNC110  seen from outside only
                    await asyncio.sleep(0.01)
            opening.cancel()
            if answered:
                await asyncio.sleep(0)
                proxy.answers.set()
        assert opening.cancelled()
        assert len(service.table) == (0 if answered else 1)
        proxy.answers.set()


class CuttingProxy:
    """Passes connections on; hangs up on the next ``cut`` replies, and passes none on while ``answers`` is clear."""

    def __init__(self, url: str) -> None:
        self.port, self.cut, self.url = int(url.rsplit(":", 1)[1]), 0, ""
        self.answers = asyncio.Event()
        self.answers.set()

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def up() -> None:
            while data := await reader.read(1 << 16):
                up_writer.write(data)
            up_writer.close()

        async def down() -> None:
            while data := await up_reader.read(1 << 16):
                await self.answers.wait()
                if self.cut:
                    self.cut -= 1
                    break
                writer.write(data)
            writer.close()
            up_writer.close()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(up())
                group.create_task(down())
        except* OSError:
            pass
