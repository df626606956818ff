"""If these fail, a trainer cannot use many machines like one, or a command runs twice."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from protocol.cli.exit_codes import main_guard
from protocol.errors import UserError
from sandbox.http.auth import Access, check_access
from sandbox.http.server_urls import worker_urls
from sandbox.http.task_codec import encode_task
from sandbox.images.image_names import built_image_name
from sandbox.pool.leases import LeaseLimits
from sandbox.providers.remote import RemotePool
from sandbox.router import groups
from sandbox.router.__main__ import COMMAND
from sandbox.router.app import create_app
from sandbox.router.placement import WorkerNode, rank_nodes
from sandbox.router.workers import RouterWorkers
from sandbox.server.service import PoolService
from sandbox.tasks.task import ImageBuild, Task
from tests.support.fake_provider import FakeProvider
from tests.support.http_servers import pool_server, serving
from tests.support.openclaw_client import OpenClawClient

INLINE = {"task": encode_task(Task(id="t", instruction="x"))}
TOKEN = "0123456789abcdef"


@dataclass
class PoolServers:
    urls: list[str] = field(default_factory=list)
    providers: dict[str, FakeProvider] = field(default_factory=dict)
    services: dict[str, PoolService] = field(default_factory=dict)

    def first_for(self, task_key: str) -> str:
        return rank_nodes(task_key, "", map(WorkerNode, self.urls))[0].url


@asynccontextmanager
async def routed(urls: list[str], token: str = "", asked: Access | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    app = create_app(lambda: RouterWorkers(tuple(urls), token, 60.0), asked or Access("127.0.0.1"))
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        yield http


@asynccontextmanager
async def servers(tmp_path: Path, count: int = 2, limits: LeaseLimits | None = None) -> AsyncGenerator[PoolServers]:
    made = PoolServers()
    async with AsyncExitStack() as stack:
        for number in range(count):
            provider = FakeProvider()
            url, service = await stack.enter_async_context(pool_server(provider, tmp_path / str(number), limits))
            made.urls.append(url)
            made.providers[url], made.services[url] = provider, service
        yield made


class CuttingWorker:
    """A worker that reads each request completely and closes the connection without an answer."""

    def __init__(self) -> None:
        self.arrived: list[str] = []

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        self.server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        async with self.server:
            yield f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        self.arrived.append(head.split(" ")[1])
        length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
        await reader.readexactly(length)
        self._answer(self.arrived[-1], writer)
        writer.close()

    def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        del path, writer


class DyingWorker(CuttingWorker):
    """A worker with room that dies with its first request."""

    def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path != "/status":
            self.server.close()
            return
        said = json.dumps({"pool": {"max_tasks": 8, "max_runs_per_task": 8, "total_active_runs": 0}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(said), said))


@contextmanager
def dropping_host() -> Generator[str]:
    """Return the address of a worker that accepts no connection: its queue is full."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for _ in range(3):
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex((host, port))
        yield f"http://{host}:{port}"


async def call(http: httpx.AsyncClient, path: str, /, **body: object) -> tuple[int, dict]:
    reply = await http.post(path, json=body)
    return reply.status_code, reply.json()


async def test_openclaws_client_works_through_the_router(tmp_path: Path):
    async with servers(tmp_path) as workers, routed(workers.urls) as http, OpenClawClient(str(http.base_url)) as client:
        client.url = client.url.rstrip("/")
        lease = (await client.allocate("t", "uid"))["lease_id"]
        await client.reset(lease, INLINE)
        await client.heartbeat(lease)
        assert await client.exec_tool(lease, "shell_exec", {"id": "a", "command": "ls"}) == "ran 1"
        assert await client.evaluate(lease) == 1.0
        await client.close(lease)
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.heartbeat(lease)


async def test_a_task_stays_on_its_worker_and_a_full_worker_spills_over(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=4, runs_per_task=2)) as workers, routed(workers.urls) as http:
        first = workers.first_for("t")
        for _ in range(2):
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
        assert len(workers.services[first].table) == 2
        for _ in range(2):
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
        assert [len(service.table) for service in workers.services.values()] == [2, 2]
        reply = await http.post("/allocate", json={"task_key": "t"})
        assert (reply.status_code, reply.json()["code"]) == (429, "RUN_SLOTS_EXHAUSTED")
        assert int(reply.headers["retry-after"]) > 0
        assert "longshore_router_spilled_total 4.0" in (await http.get("/metrics")).text


async def test_a_worker_that_is_gone_is_passed_over(tmp_path: Path):
    async with servers(tmp_path, 1) as workers:
        gone = "http://127.0.0.1:9"
        async with routed([gone, *workers.urls]) as http:
            for key in map(str, range(10)):
                assert (await call(http, "/allocate", task_key=key))[0] == 200
            workers_known = (await http.get("/status")).json()["workers"]
            assert [each["ok"] for each in workers_known] == [False, True]
        async with routed([gone]) as http:
            assert (await call(http, "/allocate", task_key="t"))[0] == 502


async def test_an_allocation_that_may_have_arrived_is_not_sent_to_another_worker(tmp_path: Path):
    """This holds even if the worker that got it has died: otherwise two hold a slot for one client."""
    dying = DyingWorker()
    async with dying.listening() as url, servers(tmp_path, 1) as workers, routed([url, *workers.urls]) as http:
        urls = [url, *workers.urls]
        key = next(key for key in map(str, range(1000)) if rank_nodes(key, "", map(WorkerNode, urls))[0].url == url)
        status, reply = await call(http, "/allocate", task_key=key, request_id="r")
        assert (status, dying.arrived) == (502, ["/status", "/allocate"])
        assert "Worker unreachable" in reply["error"]
        assert [each["ok"] for each in (await http.get("/status")).json()["workers"]] == [False, True]
        assert not len(workers.services[workers.urls[0]].table)


async def test_a_worker_whose_host_drops_packets_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The answers of the others, for example that they are full, still count."""
    monkeypatch.setattr("sandbox.router.workers._CONNECT_S", 0.5)
    with dropping_host() as gone:
        async with servers(tmp_path, 1, LeaseLimits(1, 1)) as workers, routed([gone, *workers.urls]) as http:
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
            assert (await call(http, "/allocate", task_key="t"))[1]["code"] == "RUN_SLOTS_EXHAUSTED"


async def test_a_lease_id_survives_a_router_with_another_order(tmp_path: Path):
    async with servers(tmp_path) as workers:
        async with routed(workers.urls) as http:
            _, given = await call(http, "/allocate", task_key="t")
        async with routed([*reversed(workers.urls)]) as http:
            assert (await call(http, "/heartbeat", lease_id=given["lease_id"]))[0] == 200
            for unknown in ("run-1", "00000000:run-1", ":", "a:", given["lease_id"].split(":")[0] + ":run-2"):
                status, reply = await call(http, "/heartbeat", lease_id=unknown)
                assert (status, reply["code"]) == (404, "UNKNOWN_LEASE")


async def test_what_is_not_idempotent_is_sent_once():
    for path, body, times in (
        ("/exec_tool", {"tool_call": {"name": "x"}}, 1),
        ("/exec_tool", {"tool_call": {"name": "x"}, "request_id": "r"}, 2),
        ("/heartbeat", {}, 2),
        ("/allocate", {"task_key": "t"}, 1),
        ("/allocate", {"task_key": "t", "request_id": "r"}, 2),
    ):
        worker = CuttingWorker()
        async with worker.listening() as url, routed([url]) as http:
            lease = f"{WorkerNode(url).key}:run-1"
            status, _ = await call(http, path, lease_id=lease, **body)
            assert (path, worker.arrived.count(path), status) == (path, times, 502)


async def test_a_client_that_hangs_up_on_the_router_finds_its_command_done_once(tmp_path: Path):
    async with servers(tmp_path, 1) as workers, routed(workers.urls) as http:
        _, given = await call(http, "/allocate", task_key="t")
        await call(http, "/reset", lease_id=given["lease_id"], task_meta=INLINE)
        (provider,) = workers.providers.values()
        sandbox = provider.opened[0]
        sandbox.hold = asyncio.Event()
        body = {"lease_id": given["lease_id"], "tool_call": {"name": "shell_exec", "arguments": {"command": "pay"}}}
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/exec_tool", json=body, timeout=0.5)
        async with asyncio.TaskGroup() as group:
            retry = group.create_task(http.post("/exec_tool", json=body))
            await asyncio.sleep(0.2)
            sandbox.hold.set()
        assert retry.result().json()["observation"] == "ran 1"
        assert sandbox.ran == ["shell_exec pay"]


BUILD = ImageBuild({"Dockerfile": b"FROM base\n"})


@pytest.mark.parametrize(
    ("image", "task"),
    [
        ("base:1", Task("t", "", image="base:1")),
        ("base:latest", Task("t", "", image="base")),
        (built_image_name(BUILD), Task("t", "", build=BUILD)),
    ],
)
async def test_a_worker_that_has_the_image_is_asked_first(tmp_path: Path, image: str, task: Task):
    async with servers(tmp_path) as workers:
        has = workers.urls[0]
        for url, service in workers.services.items():
            service.images = service.provider.names = (image,) if url == has else ()
        async with routed(workers.urls) as http, RemotePool(str(http.base_url)) as pool:
            for key in map(str, range(8)):
                await pool.open(replace(task, id=key))
            assert len(workers.services[has].table) == 8
            if task.image:
                assert (await call(http, "/allocate", task_key="8", image=task.image))[0] == 200
                assert len(workers.services[has].table) == 9


async def test_a_group_is_placed_as_a_whole(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=1, runs_per_task=3)) as workers, routed(workers.urls) as http:
        status, one = await call(http, "/allocate_group", task_id="g", n_slots=2)
        assert status == 200
        assert sorted(len(service.table) for service in workers.services.values()) == [0, 2]
        assert (await call(http, "/allocate_group", task_id="g", n_slots=2))[1] == one
        assert (await call(http, "/release_group", task_id="g"))[1]["released_slots"] == 2
        status, both = await call(http, "/allocate_group", task_id="h", n_slots=5)
        assert status == 200
        assert len({each["slot_id"] for each in both["assignments"]}) == 5
        assert sorted(len(service.table) for service in workers.services.values()) == [2, 3]
        slot = both["assignments"][4]["slot_id"]
        assert (await call(http, "/reset", lease_id=slot, task_meta=INLINE))[0] == 200
        await call(http, "/release_group", task_id="h")
        reply = await http.post("/allocate_group", json={"task_id": "i", "n_slots": 7})
        assert (reply.status_code, "retry-after" in reply.headers) == (422, False)
        await call(http, "/allocate", task_key="t")
        reply = await http.post("/allocate_group", json={"task_id": "i", "n_slots": 6})
        assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        assert sorted(len(service.table) for service in workers.services.values()) == [0, 1]


async def test_a_group_that_one_worker_refuses_for_its_name_leaves_nothing_on_the_others(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=2)) as workers, routed(workers.urls) as http:
        empty, held = workers.services.values()
        held.allocate_group("g", 1)
        reply = await http.post("/allocate_group", json={"task_id": "g", "n_slots": 6})
        assert (reply.status_code, reply.json()["code"]) == (409, "GROUP_CONFLICT")
        assert (len(empty.table), len(held.table)) == (0, 1)


async def test_a_group_that_is_held_keeps_its_size(tmp_path: Path):
    """This holds on one worker or several, and for a router that did not allocate it."""
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=2)) as workers:
        async with routed(workers.urls) as http:
            for slots in (3, 6):
                status, given = await call(http, "/allocate_group", task_id="g", n_slots=slots)
                assert status == 200
                for other in (slots - 1, slots // 2, slots + 1):
                    status, told = await call(http, "/allocate_group", task_id="g", n_slots=other)
                    assert (status, told["code"]) == (409, "GROUP_CONFLICT")
                    assert told["error"] == f"group g holds {slots} slots, not {other}: release it first"
                assert sum(len(service.table) for service in workers.services.values()) == slots
                if slots == 3:
                    await call(http, "/release_group", task_id="g")
        async with routed(workers.urls) as http:
            assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[1]["code"] == "GROUP_CONFLICT"
            _, again = await call(http, "/allocate_group", task_id="g", n_slots=6)
            assert {each["slot_id"] for each in again["assignments"]} == {
                each["slot_id"] for each in given["assignments"]
            }
            await call(http, "/close", lease_id=given["assignments"][0]["slot_id"])
            status, told = await call(http, "/allocate_group", task_id="g", n_slots=6)
            assert (status, told["error"]) == (409, "group g holds 5 slots, not 6: release it first")
            assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200


async def test_a_group_that_is_over_is_given_anew_in_the_size_asked_for(tmp_path: Path):
    """It goes where there is room then, not where it was before."""
    async with servers(tmp_path, 2, LeaseLimits(tasks=1, runs_per_task=5)) as workers, routed(workers.urls) as http:
        assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200
        service = next(service for service in workers.services.values() if len(service.table))
        service.release_group("g")
        _, given = await call(http, "/allocate_group", task_id="g", n_slots=2)
        assert (len(given["assignments"]), len(service.table)) == (2, 2)
        service.release_group("g")
        service.allocate("other", "")
        assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200
        assert sorted(len(each.table) for each in workers.services.values()) == [1, 5]


async def test_a_group_whose_worker_is_gone_is_placed_on_another(tmp_path: Path):
    async with servers(tmp_path, 1) as workers, AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(pool_server(FakeProvider(), tmp_path / "gone"))
        urls = [url, *workers.urls]
        group = next(key for key in map(str, range(1000)) if rank_nodes(key, "", map(WorkerNode, urls))[0].url == url)
        async with routed(urls) as http:
            assert (await call(http, "/allocate_group", task_id=group, n_slots=2))[0] == 200
            await stack.aclose()
            assert (await call(http, "/allocate_group", task_id=group, n_slots=3))[0] == 200
        assert len(workers.services[workers.urls[0]].table) == 3


async def test_a_repeated_allocation_gets_its_slot_though_the_worker_asked_first_has_room_by_now(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=1)) as workers, routed(workers.urls) as http:
        first = workers.first_for("t")
        assert (await call(http, "/allocate", task_key="t", request_id="r"))[0] == 200
        _, spilled = await call(http, "/allocate", task_key="t", request_id="s")
        for lease in workers.services[first].table.all():
            workers.services[first].close(lease.id)
        _, again = await call(http, "/allocate", task_key="t", request_id="s")
        assert (again["lease_id"], again["reused"]) == (spilled["lease_id"], True)


async def test_a_worker_that_never_answers_holds_up_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "_ANSWER_S", 0.2)
    monkeypatch.setattr("sandbox.router.workers._CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes what comes
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with servers(tmp_path, 1, LeaseLimits(tasks=1)) as workers, routed([url, *workers.urls]) as http:
            assert (await call(http, "/allocate_group", task_id="a", n_slots=2))[0] == 200
            assert (await call(http, "/allocate_group", task_id="b", n_slots=2))[0] == 503
            assert (await call(http, "/release_group", task_id="a"))[1]["released_slots"] == 2
            assert (await call(http, "/allocate_group", task_id="b", n_slots=2))[0] == 200


async def test_a_group_larger_than_one_task_s_slots_is_placed_on_one_worker_or_split(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=4)) as workers, routed(workers.urls) as http:
        assert (await call(http, "/allocate_group", task_id="g", n_slots=8))[0] == 200
        assert sorted(len(service.table) for service in workers.services.values()) == [0, 8]
        await call(http, "/release_group", task_id="g")
        assert (await call(http, "/allocate_group", task_id="h", n_slots=16))[0] == 200
        assert [len(service.table) for service in workers.services.values()] == [8, 8]


async def test_one_token_guards_router_and_workers(tmp_path: Path):
    guarded = check_access("127.0.0.1", TOKEN, no_auth=False)
    async with (
        pool_server(FakeProvider(), tmp_path, access=guarded) as (url, _),
        routed([url], TOKEN, guarded) as http,
    ):
        assert (await call(http, "/allocate", task_key="t"))[0] == 401
        http.headers["authorization"] = f"Bearer {TOKEN}"
        assert (await call(http, "/allocate", task_key="t"))[0] == 200


def test_a_router_without_workers_or_with_nonsense_says_so(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("WORKER_URLS", raising=False)
    assert worker_urls(" http://a:1/ ,http://b:2,http://a:1") == ("http://a:1", "http://b:2")
    with pytest.raises(UserError, match="http://host:port"):
        worker_urls("a:1")
    assert main_guard(lambda: COMMAND.call([])) == 2
    assert main_guard(lambda: COMMAND.call(["--workers", "http://a:1", "--host", "10.0.0.1"])) == 2
    said = capsys.readouterr().err
    assert "WORKER_URLS" in said
    assert "--no-auth" in said
