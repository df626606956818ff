"""If these fail, a harness in a sandbox of a pool server does not reach its policy, reaches another's, or goes on after
its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from protocol.errors import UserError
from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxLost
from sandbox.http.auth import Access
from sandbox.http.json_client import JsonHttpClient
from sandbox.http.streams import AGENT_CONNECTION_PATH
from sandbox.providers.agent_relay import relay_agent_connections
from sandbox.providers.interface import open_sandbox
from sandbox.providers.remote import RemotePool, RemoteSandbox
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task, TaskStep
from tests.support.fakes.fake_provider import FakeProvider, FakeSandbox
from tests.support.network.http_servers import pool_server, serving

TASK = Task(id="t1", instruction="Do it.", workdir="/app")
PORT, TOKEN = 3129, "a" * 32


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider()


@asynccontextmanager
async def serve_pool(provider: FakeProvider, tmp_path: Path, kind: str = "server") -> AsyncGenerator[str]:
    """Serve the pool, with a token, directly or behind a router."""
    access = Access("127.0.0.1", TOKEN)
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(pool_server(provider, tmp_path, access=access))
        if kind == "router":
            app = create_app(lambda: RoutedPoolServers((url,), TOKEN, 600.0), access)
            url = await stack.enter_async_context(serving(app))
        yield url


@asynccontextmanager
async def running_agent(sandbox: RemoteSandbox, inside: FakeSandbox, name: str) -> AsyncGenerator[int]:
    """Run a program in the sandbox whose client greets each connection and echoes its lines; yield the port inside."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{name}\n".encode())
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
            if line == b"quit\n":
                break
        writer.close()

    inside.may_finish = asyncio.Event()
    async with sandbox.listen(PORT) as listener, asyncio.timeout(30):
        server = await asyncio.start_unix_server(greet, sock=listener)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sandbox.run_agent("go", lambda: 30.0, lambda _: None))
            for _ in range(1000):
                if PORT in inside.ports:
                    break
                await asyncio.sleep(0.01)
            yield inside.ports[PORT]
            inside.may_finish.set()
            assert (await running).output == "ran"
        server.close()


async def exchange(port: int, *lines: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = [await reader.readline()]
    for line in lines:
        writer.write(line)
        heard.append(await reader.readline())
    writer.close()
    return heard


@pytest.mark.parametrize("kind", ["server", "router"])
async def test_connections_of_a_sandbox_reach_its_own_client_alone(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    big = b"x" * 60_000 + b"\n"
    async with (
        serve_pool(provider, tmp_path, kind) as url,
        RemotePool(url, TOKEN, acquire_s=10) as pool,
        RemotePool(url, TOKEN, acquire_s=10) as other_pool,
    ):
        one, other = await pool.open(TASK), await other_pool.open(TASK)
        inside, other_inside = provider.opened
        async with (
            running_agent(one, inside, "one") as port,
            running_agent(other, other_inside, "other") as other_port,
        ):
            async with asyncio.TaskGroup() as group:
                heard = [group.create_task(exchange(port, b"%d\n" % number, big)) for number in range(5)]
            assert [each.result() for each in heard] == [[b"one\n", b"%d\n" % number, big] for number in range(5)]
            assert await exchange(other_port, b"hello\n") == [b"other\n", b"hello\n"]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"quit\n")
            assert await reader.read() == b"one\nquit\n", "what the client closes is not closed in the sandbox"
            writer.close()
            left, left_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await left.readline() == b"one\n"
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await left.read() == b"", "a connection outlives its program"
        left_writer.close()
        await one.close()
        await other.close()


async def test_nobody_carries_connections_without_the_token_and_the_lease(
    provider: FakeProvider, tmp_path: Path
) -> None:
    async with (
        serve_pool(provider, tmp_path) as url,
        RemotePool(url, TOKEN, acquire_s=10) as pool,
        aiohttp.ClientSession() as stranger,
    ):
        sandbox = await pool.open(TASK)
        for token, lease, status in (("", sandbox.lease_id, 401), (TOKEN, "run-of-nobody", 404), (TOKEN, "", 404)):
            asked = stranger.post(
                url + AGENT_CONNECTION_PATH, params={"lease_id": lease}, headers={"authorization": f"Bearer {token}"}
            )
            async with asked as reply:
                assert reply.status == status
        await sandbox.close()


async def test_a_program_whose_time_is_up_is_interrupted(provider: FakeProvider, tmp_path: Path) -> None:
    async with serve_pool(provider, tmp_path, "router") as url, RemotePool(url, TOKEN, acquire_s=10) as pool:
        sandbox = await pool.open(TASK)
        provider.opened[0].may_finish = asyncio.Event()
        async with sandbox.listen(PORT), asyncio.timeout(30):
            done = await sandbox.run_agent("forever", lambda: 0.0, lambda _: None)
        assert done.timed_out
        await sandbox.close()


async def test_one_request_does_not_last_as_long_as_a_program(provider: FakeProvider, tmp_path: Path) -> None:
    """Otherwise what drops silent connections on the way loses a finished episode."""
    async with serve_pool(provider, tmp_path, "router") as url, RemotePool(url, TOKEN, acquire_s=10) as pool:
        sandbox = await pool.open(TASK)
        inside = provider.opened[0]
        inside.may_finish = asyncio.Event()
        request = {"lease_id": sandbox.lease_id, "request_id": "1", "command": "go", "timeout_s": 600.0, "port": PORT}
        goes_on = await pool.post_with_retries("/run_agent", request | {"deadline_s": 1.0}, 1.0)
        inside.may_finish.set()
        ended = await pool.post_with_retries("/run_agent", request | {"deadline_s": 30.0}, 30.0)
        assert (goes_on["result"], ended["result"]["output"], inside.calls) == (None, "ran", ["go"])
        await sandbox.close()


class FakeRemotePool(RemotePool):
    """Stands for a server whose program ends with its ``polls``-th request, or never."""

    def __init__(self, polls: int | None) -> None:
        super().__init__("http://127.0.0.1:1", acquire_s=10)
        self.polls, self.ids = polls, list[str]()

    async def post_with_retries(
        self, path: str, body: dict[str, Any], deadline_s: float | None = None
    ) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        if path != "/run_agent":
            return {"ok": True}
        assert body["deadline_s"] == deadline_s == 30.0
        self.ids.append(body["request_id"])
        ended = len(self.ids) == self.polls
        return {"result": asdict(CommandResult("ran", 0, 0, False, 0.1, False)) if ended else None}


async def test_a_program_is_asked_for_again_and_again_until_it_has_ended() -> None:
    pool = FakeRemotePool(3)
    async with asyncio.timeout(30):
        assert (await RemoteSandbox(pool, "a").run_agent("go", lambda: 30.0, lambda _: None)).output == "ran"
    assert pool.ids == pool.ids[:1] * 3, "the repeated request is not the same"


async def test_a_program_that_goes_on_after_its_interrupt_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.providers.remote.INTERRUPTED_S", 0.0)
    sandbox = RemoteSandbox(FakeRemotePool(None), "a")
    async with asyncio.timeout(30):
        with pytest.raises(SandboxLost, match="did not end within 0 s of its interrupt"):
            await sandbox.run_agent("go", lambda: 0.0, lambda _: None)
    assert not sandbox.alive


@pytest.mark.parametrize("fault", ["closed at once", "a defect"])
async def test_a_connection_that_fails_is_the_only_one(fault: str) -> None:
    """Otherwise an agent ends its episode as a failure of the infrastructure when it likes."""
    asked, thrice = list[bytes](), asyncio.Event()

    async def close_three_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) <= 3:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        else:
            thrice.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(close_three_at_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    faults = iter([RuntimeError("a defect")] if fault == "a defect" else [])
    async with asyncio.timeout(30), server, JsonHttpClient(f"http://127.0.0.1:{port}") as client:

        def open_stream(body: AsyncIterable[bytes]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
            for error in faults:
                raise error
            return client.open_stream("/", body, 10.0)

        async with relay_agent_connections(open_stream):
            await thrice.wait()


async def test_what_a_harness_ran_is_read_at_the_grade_and_an_agents_own_calls_are_not_sent_twice(
    provider: FakeProvider, tmp_path: Path
) -> None:
    async with serve_pool(provider, tmp_path) as url, RemotePool(url, TOKEN, acquire_s=10) as pool:
        sandbox = await pool.open(TASK)
        await sandbox.grade(commands=["ls"])
        async with sandbox.listen(PORT), asyncio.timeout(30):
            await sandbox.run_agent("go", lambda: 0.0, lambda _: None)
        await sandbox.grade(commands=["", "cat /tests/a"])
        assert provider.opened[0].calls == ["grade", "go", "grade\n\ncat /tests/a"]
        await sandbox.close()


async def test_a_server_gives_the_programs_that_its_machine_has_and_names_those_that_it_lacks(
    provider: FakeProvider, tmp_path: Path
) -> None:
    provider.programs = ("harnesses/pi-1.0-abc",)
    async with serve_pool(provider, tmp_path) as url:
        for folder in ("harnesses/claude-code-2.0-abc", "harnesses/../../etc"):
            programs = AgentPrograms(folder, 100, 10)
            async with RemotePool(url, TOKEN, acquire_s=10, programs=programs) as pool:
                with pytest.raises(UserError, match=r"has no .*: run `longshore harness install"):
                    await pool.open(TASK)
        had = AgentPrograms("harnesses/pi-1.0-abc", 100, 10)
        async with RemotePool(url, TOKEN, acquire_s=10, programs=had) as pool:
            await (await pool.open(TASK)).close()
    assert provider.given == [had]


async def test_steps_begin_one_by_one_and_none_is_graded_before(provider: FakeProvider, tmp_path: Path) -> None:
    task = replace(TASK, steps=(TaskStep("one", "1"), TaskStep("two", "2")))
    async with serve_pool(provider, tmp_path) as url, RemotePool(url, TOKEN, acquire_s=10) as pool:
        async with open_sandbox(pool, task) as unbegun:
            with pytest.raises(SandboxLost, match="the task has steps, and none has begun"):
                await unbegun.grade()
        sandbox = await pool.open(task)
        for number in range(2):
            await sandbox.begin_step(number)
            await sandbox.grade()
        with pytest.raises(ValueError, match="the task has 2 steps: there is no step 2"):
            await sandbox.begin_step(2)
        assert provider.opened[-1].calls == ["step 0", "grade", "step 1", "grade"]
        await sandbox.close()
