"""If these fail, trainers with OpenClaw's protocol cannot use the pool, or use it wrongly."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from sandbox.errors import BuildError, SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.http.auth import check_access
from sandbox.http.messages import HttpReply
from sandbox.http.task_codec import encode_task
from sandbox.pool.leases import LeaseLimits, SlotLease
from sandbox.server.journal import StateDirectory
from sandbox.server.operations import RequestedOperation
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task
from tests.support.fakes.fake_clock import FakeClock
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server
from tests.support.sandbox.openclaw_client import OpenClawClient

TASK = Task(id="t1", instruction="Do it.", run_tests="true\n", workdir="/app")
META = {"task_name": "t1", "task_path": "set/t1", "instruction": "Do it.", "data_source": "terminal_bench"}
INLINE = {"task": encode_task(TASK)}


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    (tmp_path / "data/set").mkdir(parents=True)
    write_task(TASK, tmp_path / "data/set")
    (tmp_path / "outside").mkdir()
    return tmp_path / "data"


async def call(http: httpx.AsyncClient, path: str, /, **body: object) -> tuple[int, dict]:
    reply = await http.post(path, json=body)
    return reply.status_code, reply.json()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  seen from outside only
            await asyncio.sleep(0.01)


async def leased(http: httpx.AsyncClient, **more: object) -> str:
    """Allocate a lease with a sandbox."""
    _, reply = await call(http, "/allocate", task_key="t1", **more)
    status, _ = await call(http, "/reset", lease_id=reply["lease_id"], task_meta=INLINE)
    assert status == 200
    return reply["lease_id"]


async def test_openclaws_client_works_unchanged(provider: FakeProvider, dataset: Path, tmp_path: Path):
    async with pool_server(provider, tmp_path / "s", dataset=dataset) as (url, _), OpenClawClient(url) as client:
        lease = await client.allocate("t1", "uid-1")
        assert (lease["lease_id"][:4], len(lease["lease_id"]), lease["reused"]) == ("run-", 20, False)
        assert (await client.allocate("t1", "uid-1"))["reused"] is True
        reply = await client.reset(lease["lease_id"], META)
        assert reply["user_msg"] == "Task name:t1\nTask instruction: Do it."
        assert "shell_exec" in [schema["function"]["name"] for schema in reply["tool_schemas"]]
        await client.heartbeat(lease["lease_id"])
        assert await client.exec_tool(lease["lease_id"], "shell_exec", {"id": "a", "command": "ls"}) == "ran 1"
        assert await client.evaluate(lease["lease_id"]) == 1.0
        await client.close(lease["lease_id"])
        before = client.requests
        await client.close(lease["lease_id"])
        assert client.requests == before + 1
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.heartbeat(lease["lease_id"])
    assert not provider.running


async def test_status_and_health_are_openclaws(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/healthz")).json() == {"ok": True}
        await leased(http)
        pool = (await http.get("/status")).json()["pool"]
        assert pool | {"images": [], "wait_s": 0.0} == {
            "max_tasks": 16, "active_tasks": 1, "max_runs_per_task": 8, "total_active_runs": 1, "pending_closes": 0,
            "tasks": {"t1": {"active_runs": 1}}, "groups": {}, "reserved": {}, "images": [], "wait_s": 0.0,
            "draining": False, "agent_programs": [], "can_run_agents": True,
        }  # fmt: skip
        text = (await http.get("/metrics")).text
        assert "longshore_sandbox_leases 1.0" in text
        assert "longshore_sandbox_starts_total 1.0" in text


async def test_a_full_server_says_which_slots_and_when_to_come_back(provider: FakeProvider, tmp_path: Path):
    limits = LeaseLimits(tasks=2, runs_per_task=1)
    async with pool_server(provider, tmp_path, limits) as (url, _), httpx.AsyncClient(base_url=url) as http:
        await call(http, "/allocate", task_key="a")
        for key, code in (("a", "RUN_SLOTS_EXHAUSTED"), ("b", ""), ("c", "TASK_SLOTS_EXHAUSTED")):
            reply = await http.post("/allocate", json={"task_key": key})
            assert reply.json().get("code", "") == code
            assert reply.status_code == (429 if code else 200)
            assert ("retry-after" in reply.headers) == bool(code)


async def test_no_slot_is_granted_during_a_start_backlog(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        provider.backlog_s = 125.0
        reply = await http.post("/allocate", json={"task_key": "a"})
        assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (
            429,
            "STARTS_BACKLOGGED",
            "6",
        )
        provider.backlog_s = 1.0
        assert (await call(http, "/allocate", task_key="a"))[0] == 200


@pytest.mark.parametrize(
    "path", ["/heartbeat", "/reset", "/exec_tool", "/evaluate", "/run", "/write_files", "/read_file"]
)
async def test_an_unknown_lease_is_not_found(provider: FakeProvider, tmp_path: Path, path: str):
    body = {
        "lease_id": "run-no", "task_meta": INLINE, "tool_call": {"name": "x"}, "command": "x", "files": {}, "path": "/",
    }  # fmt: skip
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        status, reply = await call(http, path, **body)
        assert (status, reply["ok"], reply["code"]) == (404, False, "UNKNOWN_LEASE")
        assert "Unknown lease run-no" in reply["error"]
        assert (await call(http, "/close", lease_id="run-no")) == (200, {"ok": True, "found": False})


async def test_a_heartbeat_waits_for_no_operation_and_a_busy_lease_is_not_reaped(
    provider: FakeProvider, tmp_path: Path
):
    """OpenClaw's heartbeat waits for the lock of the operation that it should keep alive."""
    limits, clock = LeaseLimits(ttl_s=10.0), FakeClock()
    async with (
        pool_server(provider, tmp_path, limits, now=clock, expiry_check_s=0.01) as (url, service),
        httpx.AsyncClient(base_url=url) as http,
    ):
        lease = await leased(http)
        sandbox = provider.opened[0]
        sandbox.may_finish = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(call(http, "/evaluate", lease_id=lease))
            await until(lambda: bool(sandbox.calls))
            clock.now += 60.0
            await asyncio.sleep(0.1)  # several checks
            assert not service.reaped
            assert (await call(http, "/heartbeat", lease_id=lease))[0] == 200
            sandbox.may_finish.set()
            assert (await running)[1]["score"] == 1.0
        clock.now += 60.0
        await until(lambda: service.reaped > 0)
        assert (await call(http, "/heartbeat", lease_id=lease))[0] == 404
        await until(lambda: not provider.running)


async def test_a_blind_retry_of_a_cut_request_does_not_run_the_command_again(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        sandbox = provider.opened[0]
        sandbox.may_finish = asyncio.Event()
        body = {"lease_id": lease, "tool_call": {"name": "shell_exec", "arguments": {"command": "charge card"}}}
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/exec_tool", json=body, timeout=0.3)
        async with asyncio.TaskGroup() as group:
            retry = group.create_task(http.post("/exec_tool", json=body))
            await asyncio.sleep(0.1)
            sandbox.may_finish.set()
            assert (await retry).json()["observation"] == "ran 1"
        assert sandbox.calls == ["shell_exec charge card"]


async def test_a_command_that_a_killed_server_began_is_not_run_again_by_openclaws_client(
    provider: FakeProvider, tmp_path: Path
):
    """This holds however often it retries; after a reset it may send the command again."""
    state, call = tmp_path / "s", ("shell_exec", {"command": "charge card"})
    async with pool_server(FakeProvider(running=provider.running), state) as (url, _), OpenClawClient(url) as client:
        lease = (await client.allocate("t1"))["lease_id"]
        await client.reset(lease, INLINE)
        (journal,) = state.glob("*.jsonl")
        known = journal.read_bytes()
        await client.exec_tool(lease, *call)
        known += b"".join(line for line in journal.read_bytes()[len(known) :].splitlines(True) if b"begin" in line)
    journal.write_bytes(known)
    provider.running.add("container-0")
    async with pool_server(provider, state) as (url, _), OpenClawClient(url) as client:
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            await client.exec_tool(lease, *call)
        assert client.requests == 3
        assert not provider.opened[0].calls
        await client.reset(lease, INLINE)
        assert await client.exec_tool(lease, *call) == "ran 1"


async def test_an_operation_past_its_clients_deadline_is_never_started(
    provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, arrived = FakeClock(), list[str]()
    async with pool_server(provider, tmp_path, now=clock) as (url, service), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        operations = service.lease_state(lease).operations
        run_once = operations.run_once

        async def note(request: RequestedOperation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
            arrived.append(request.what)
            return await run_once(request, do)

        monkeypatch.setattr(operations, "run_once", note)
        sandbox = provider.opened[0]
        sandbox.may_finish = asyncio.Event()
        status, reply = await call(http, "/run", lease_id=lease, command="slow", timeout_s=3600, deadline_s=1)
        assert (status, reply["code"]) == (504, "DEADLINE")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(call(http, "/run", lease_id=lease, command="first"))
            await until(lambda: sandbox.calls == ["slow", "first"])
            queued = group.create_task(call(http, "/run", lease_id=lease, command="late", deadline_s=1))
            await until(lambda: len(arrived) == 3)
            clock.now += 1.2
            sandbox.may_finish.set()
            assert [(await each)[0] for each in (running, queued)] == [200, 504]
            assert queued.result()[1]["code"] == "NOT_BEGUN"
        assert sandbox.calls == ["slow", "first"]


async def test_an_evaluations_time_limit_follows_its_task_and_timeout(
    provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The limit is not ten minutes for every task."""
    gradings: list[tuple[str, float | None]] = []

    def longest(task: Task, timeout_s: float | None) -> float:
        gradings.append((task.id, timeout_s))
        return 0.05

    monkeypatch.setattr("sandbox.server.app.max_grading_s", longest)
    async with pool_server(provider, tmp_path, slack_s=0.0) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        provider.opened[0].may_finish = asyncio.Event()
        for timeout_s in (None, 7200.0):
            assert (await call(http, "/evaluate", lease_id=lease, timeout_s=timeout_s))[0] == 504
        assert gradings == [("t1", None), ("t1", 7200.0)]


async def test_evaluation_with_a_request_id_grades_once(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        first, again = [await call(http, "/evaluate", lease_id=lease, request_id="e") for _ in range(2)]
        assert first == again
        assert provider.opened[0].grades == 1


@pytest.mark.parametrize("sent", ["-_-_", "aGk=\n", "not base64 at all!!", "aGk", "aGk=aGk=", "é"])
async def test_a_file_in_invalid_base64_is_refused_and_no_file_is_written(
    provider: FakeProvider, tmp_path: Path, sent: str
):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        status, reply = await call(http, "/write_files", lease_id=lease, files={"/a": sent, "/b": "+/+/"})
        assert (status, reply["code"]) == (400, "BAD_REQUEST")
        assert "files./a" in reply["error"]
        assert "base64" in reply["error"]
        assert not provider.opened[0].files
        assert (await call(http, "/write_files", lease_id=lease, files={"/b": "+/+/"}))[0] == 200
        assert provider.opened[0].files == {"/b": b"\xfb\xff\xbf"}


async def test_a_repeated_request_with_a_shorter_deadline_is_the_same_request(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        body = {"lease_id": await leased(http), "command": "x", "request_id": "r"}
        reply = [await call(http, "/run", **body, deadline_s=deadline_s) for deadline_s in (30, 29, None)]
        assert reply[0][0] == 200
        assert reply[1:] == reply[:1] * 2
        assert provider.opened[0].calls == ["x"]
        assert (await call(http, "/run", **body | {"command": "y"}))[1]["code"] == "REQUEST_ID_REUSED"


async def test_a_reset_ends_the_sandbox_before_it(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        await call(http, "/reset", lease_id=lease, task_meta=INLINE)
        assert [each.closed for each in provider.opened] == [True, False]


async def test_a_lease_closed_during_its_reset_leaves_no_sandbox(provider: FakeProvider, tmp_path: Path):
    provider.may_open = asyncio.Event()
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        _, allocated = await call(http, "/allocate", task_key="t1")
        async with asyncio.TaskGroup() as group:
            reset = group.create_task(call(http, "/reset", lease_id=allocated["lease_id"], task_meta=INLINE))
            await asyncio.sleep(0.1)
            assert (await call(http, "/close", lease_id=allocated["lease_id"]))[1]["found"]
            provider.may_open.set()
            assert (await reset)[0] == 404
        assert not provider.running


async def test_a_lease_closed_during_an_operation_leaves_no_journal(provider: FakeProvider, tmp_path: Path):
    def journals() -> list[Path]:
        return list(tmp_path.glob("*.jsonl"))

    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        sandbox = provider.opened[0]
        sandbox.may_finish = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(call(http, "/run", lease_id=lease, command="x", request_id="r"))
            await until(lambda: bool(sandbox.calls))
            await call(http, "/close", lease_id=lease)
            await until(lambda: not journals())
            sandbox.may_finish.set()
            assert (await running)[1]["code"] == "SANDBOX_LOST"
        assert not journals()


async def test_the_cause_of_a_sandbox_loss_is_in_the_reply(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = await leased(http)
        sandbox = provider.opened[0]
        sandbox.error = SandboxDestroyed("the agent used up the memory")
        _, reply = await call(http, "/exec_tool", lease_id=lease, tool_call={"name": "shell_exec"})
        assert (reply["ended"], "used up the memory" in reply["observation"]) == ("sandbox_destroyed", True)
        assert (await call(http, "/evaluate", lease_id=lease))[1]["score"] == 0.0
        sandbox.error = SandboxLost("the daemon is gone")
        assert (await call(http, "/exec_tool", lease_id=lease, tool_call={"name": "x"}))[0] == 410
        assert (await call(http, "/evaluate", lease_id=lease))[1]["code"] == "SANDBOX_LOST"


async def test_a_failed_start_is_an_infrastructure_failure_that_may_be_retried(provider: FakeProvider, tmp_path: Path):
    provider.open_error = SandboxStartError("no memory left")
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        _, allocated = await call(http, "/allocate", task_key="t1")
        reply = await http.post("/reset", json={"lease_id": allocated["lease_id"], "task_meta": INLINE})
        assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (
            503,
            "SANDBOX_START_FAILED",
            "2",
        )
        assert (await call(http, "/run", lease_id=allocated["lease_id"], command="x"))[1]["code"] == "NOT_RESET"
        provider.open_error = None
        assert (await call(http, "/reset", lease_id=allocated["lease_id"], task_meta=INLINE))[0] == 200


@pytest.mark.parametrize("error", [TaskFault("its setup exited 7"), BuildError("its build failed")], ids=repr)
async def test_a_start_that_fails_by_a_task_fault_may_not_be_retried(
    provider: FakeProvider, tmp_path: Path, error: TaskFault
):
    provider.open_error = error
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        _, allocated = await call(http, "/allocate", task_key="t1")
        reply = await http.post("/reset", json={"lease_id": allocated["lease_id"], "task_meta": INLINE})
        assert (reply.status_code, "retry-after" in reply.headers) == (422, False)
        assert str(error) in reply.json()["error"]


@pytest.mark.parametrize(
    "path", ["../outside", "/etc", "set/../..", "", ".", "set/none", "a\0b", 5, None, "a" * 300, "a/" * 3000]
)
async def test_a_task_path_stays_in_the_data_set(provider: FakeProvider, dataset: Path, tmp_path: Path, path: object):
    async with (
        pool_server(provider, tmp_path / "s", dataset=dataset) as (url, _),
        httpx.AsyncClient(base_url=url) as http,
    ):
        _, allocated = await call(http, "/allocate", task_key="t1")
        status, reply = await call(http, "/reset", lease_id=allocated["lease_id"], task_meta={"task_path": path})
        assert (status, reply["code"]) == (422, "TASK_REFUSED")
        assert "is missing" not in reply["error"], "a client's path says nothing about a task's files"


async def test_a_link_out_of_the_data_set_is_not_followed(provider: FakeProvider, dataset: Path, tmp_path: Path):
    write_task(TASK, tmp_path / "outside")
    (dataset / "link").symlink_to(tmp_path / "outside/t1")
    async with (
        pool_server(provider, tmp_path / "s", dataset=dataset) as (url, _),
        httpx.AsyncClient(base_url=url) as http,
    ):
        _, allocated = await call(http, "/allocate", task_key="t1")
        status, _ = await call(http, "/reset", lease_id=allocated["lease_id"], task_meta={"task_path": "link"})
        assert status == 422


async def test_a_group_follows_setas_protocol(provider: FakeProvider, tmp_path: Path):
    limits = LeaseLimits(tasks=4, runs_per_task=4)
    async with pool_server(provider, tmp_path, limits) as (url, _), httpx.AsyncClient(base_url=url) as http:
        status, allocated = await call(http, "/allocate_group", task_id="g", n_slots=3)
        assert status == 200
        slots = [each["slot_id"] for each in allocated["assignments"]]
        assert {each["node_url"] for each in allocated["assignments"]} == {url}
        again = (await call(http, "/allocate_group", task_id="g", n_slots=3))[1]
        assert [each["slot_id"] for each in again["assignments"]] == slots
        assert (await call(http, "/allocate_group", task_id="h", n_slots=14))[0] == 503
        assert (await call(http, "/allocate_group", task_id="g", n_slots=2))[0] == 409
        reply = (await http.get("/status")).json()["pool"]
        assert (reply["total_active_runs"], reply["groups"]) == (3, {"g": 3})
        assert (await call(http, "/reset", lease_id=slots[0], task_meta=INLINE))[0] == 200
        assert (await call(http, "/release_group", task_id="g"))[1]["released_slots"] == 3
        assert (await http.get("/status")).json()["pool"]["total_active_runs"] == 0


async def test_requests_are_accepted_and_refused_as_by_openclaws_server(provider: FakeProvider, tmp_path: Path):
    key = f"a-task:/data{'/folder' * 500}"
    body = json.dumps({"task_key": key, "request_id": f"{key}:uid:3:7"}).encode()
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        assert (await http.post("/allocate", content=body)).json()["reused"] is False, "no content type"
        assert (await http.post("/allocate", content=body, headers={"content-type": "text/plain"})).json()["reused"]
        lease = await leased(http)
        for arguments in ("ls", ["ls"], 5):
            tool_call = {"name": "shell_exec", "arguments": arguments}
            assert (await call(http, "/exec_tool", lease_id=lease, tool_call=tool_call))[0] == 400


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400), (b"[]", {}, 400), (b"{}", {}, 400), (b'{"task_key": 5}', {}, 400), (b"", {}, 400),
        (b'{"task_key": "\xff"}', {}, 400), (b'{"task_key": "\\ud800"}', {}, 400),
        (b'{"task_key": "a"}', {"content-type": "text/plain", "origin": "http://page.example"}, 415),
        (b'{"task_key": ' + b"[" * 50_000, {}, 400), (b'{"task_key": ' + b"[" * 200_001, {}, 413),
    ],
)  # fmt: skip
async def test_invalid_requests_are_refused_in_one_line(
    provider: FakeProvider, tmp_path: Path, content: bytes, headers: dict[str, str], status: int
):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        request_headers = {"content-type": "application/json", **headers}
        reply = await http.post("/allocate", content=content, headers=request_headers)
        assert reply.status_code == status
        assert reply.json()["ok"] is False
        assert re.match(r"\w", reply.json()["error"])
        assert (await http.get("/allocate")).status_code == 404
        assert (await http.get("/../etc/passwd")).json()["code"] == "NO_SUCH_ENDPOINT"


async def test_a_body_is_bounded_before_it_is_all_there(provider: FakeProvider, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sandbox.http.messages.AllocateRequest.most_bytes", 1000)
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        reply = await http.post("/allocate", json={"task_key": "x" * 2000})
        assert reply.status_code == 413


async def test_the_access_token_is_required_and_compared(provider: FakeProvider, tmp_path: Path):
    guarded = check_access("127.0.0.1", "0123456789abcdef", no_auth=False)
    async with pool_server(provider, tmp_path, access=guarded) as (url, _), httpx.AsyncClient(base_url=url) as http:
        for header in ("", "Bearer wrong", "0123456789abcdef", "Bearer 0123456789abcde"):
            reply = await http.post("/allocate", json={"task_key": "a"}, headers={"authorization": header})
            assert (reply.status_code, reply.json()["code"]) == (401, "UNAUTHORIZED")
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/healthz")).status_code == 200
        for scheme in ("Bearer", "bearer"):
            right = {"authorization": f"{scheme} 0123456789abcdef"}
            assert (await http.post("/allocate", json={"task_key": "a"}, headers=right)).status_code == 200


async def test_a_loopback_server_refuses_a_foreign_host_header(provider: FakeProvider, tmp_path: Path):
    async with pool_server(provider, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as http:
        reply = await http.post("/allocate", json={"task_key": "a"}, headers={"host": "evil.example"})
        assert reply.status_code == 400


async def test_a_killed_servers_sandboxes_are_taken_over_side_by_side(provider: FakeProvider, tmp_path: Path):
    """One after the other, the last would expire before it is taken over."""
    for number in range(16):
        journal = StateDirectory(tmp_path).journal(f"run-{number}")
        journal.record_lease(SlotLease(f"run-{number}", "t1", 0.0))
        journal.record_sandbox(f"container-{number}", {"task_meta": INLINE})
        provider.running.add(f"container-{number}")
    provider.adopt_together = asyncio.Barrier(16)
    async with asyncio.timeout(30), pool_server(provider, tmp_path) as (_, service):
        assert service.adopted == 16
        assert all(service.require_sandbox(service.lease_state(f"run-{number}")) for number in range(16))


async def test_an_evaluations_time_limit_survives_a_killed_server(provider: FakeProvider, tmp_path: Path):
    state, killed = tmp_path / "s", FakeProvider(running=provider.running)
    async with pool_server(killed, state) as (url, _), httpx.AsyncClient(base_url=url) as http:
        lease = (await call(http, "/allocate", task_key="t1"))[1]["lease_id"]
        await call(http, "/reset", lease_id=lease, task_meta=INLINE, task_timeouts={"eval": 0.2})
        (journal,) = state.glob("*.jsonl")
        known = journal.read_bytes()
    journal.write_bytes(known)
    provider.running.add("container-0")
    async with pool_server(provider, state, slack_s=0.0) as (url, _), httpx.AsyncClient(base_url=url) as http:
        provider.opened[0].may_finish = asyncio.Event()
        assert (await call(http, "/evaluate", lease_id=lease))[0] == 504


async def test_leases_of_a_killed_server_continue_and_its_other_containers_are_removed(
    provider: FakeProvider, tmp_path: Path
):
    """A kill leaves the journals and the containers. The servers here share the machine, not their memory."""
    killed = FakeProvider(running=provider.running)
    state = tmp_path / "s"
    async with pool_server(killed, state) as (url, _), httpx.AsyncClient(base_url=url) as http:
        kept, lost = await leased(http), await leased(http)
        _, empty = await call(http, "/allocate", task_key="t1")
        await call(http, "/exec_tool", lease_id=kept, tool_call={"name": "n"}, request_id="done")
        journals = {path: path.read_bytes() for path in state.glob("*.jsonl")}
        (begun,) = [path for path in journals if path.stem == kept]
        journals[begun] += json.dumps({"begin": "exec_tool/begun", "digest": ""}).encode() + b"\n"
    for path, content in journals.items():
        path.write_bytes(content)
    provider.running |= {"container-0", "nobodys"}
    async with pool_server(provider, state) as (url, service), httpx.AsyncClient(base_url=url) as http:
        assert provider.adopted == ["container-0"]
        assert provider.removed == ["nobodys"]
        assert (service.adopted, service.swept) == (1, 1)
        body = {"lease_id": kept, "tool_call": {"name": "n"}}
        assert (await call(http, "/exec_tool", **body, request_id="done"))[1]["observation"] == "ran 1"
        assert (await call(http, "/exec_tool", **body, request_id="begun"))[1]["code"] == "OUTCOME_UNKNOWN"
        assert not provider.opened[0].calls
        assert (await call(http, "/exec_tool", **body))[1]["observation"] == "ran 1"
        assert (await call(http, "/exec_tool", lease_id=lost, tool_call={"name": "n"}))[1]["code"] == "SANDBOX_LOST"
        assert (await call(http, "/reset", lease_id=empty["lease_id"], task_meta=INLINE))[0] == 200
    assert not provider.running
    assert not list(state.glob("*.jsonl"))
