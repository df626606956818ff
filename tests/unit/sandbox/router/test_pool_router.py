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
from sandbox.http.server_urls import parse_server_urls
from sandbox.http.task_codec import encode_task
from sandbox.images.image_names import built_image_name
from sandbox.pool.leases import LeaseLimits
from sandbox.providers.remote import RemotePool
from sandbox.router import groups
from sandbox.router.__main__ import COMMAND
from sandbox.router.app import create_app
from sandbox.router.placement import PoolServerNode, rank_nodes
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.server.service import PoolService
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server, serving
from tests.support.sandbox.openclaw_client import OpenClawClient

INLINE = {"task": encode_task(Task(id="t", instruction="x"))}
TOKEN = "0123456789abcdef"


@dataclass
class RunningPoolServers:
    urls: list[str] = field(default_factory=list)
    providers: dict[str, FakeProvider] = field(default_factory=dict)
    services: dict[str, PoolService] = field(default_factory=dict)

    def first_for(self, task_key: str) -> str:
        return rank_nodes(task_key, "", map(PoolServerNode, self.urls))[0].url


@asynccontextmanager
async def routed(urls: list[str], token: str = "", access: Access | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    app = create_app(lambda: RoutedPoolServers(tuple(urls), token, 60.0), access or Access("127.0.0.1"))
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        yield http


@asynccontextmanager
async def servers(
    tmp_path: Path, count: int = 2, limits: LeaseLimits | None = None
) -> AsyncGenerator[RunningPoolServers]:
    made = RunningPoolServers()
    async with AsyncExitStack() as stack:
        for number in range(count):
            provider = FakeProvider()
            url, service = await stack.enter_async_context(pool_server(provider, tmp_path / str(number), limits))
            made.urls.append(url)
            made.providers[url], made.services[url] = provider, service
        yield made


class CuttingServer:
    """A server that reads each request completely and closes the connection without an answer."""

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


class DyingServer(CuttingServer):
    """A server with room that dies with its first request."""

    def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path != "/status":
            self.server.close()
            return
        body = json.dumps({"pool": {"max_tasks": 8, "max_runs_per_task": 8, "total_active_runs": 0}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


@contextmanager
def dropping_host() -> Generator[str]:
    """Return the address of a server that accepts no connection: its queue is full."""
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
    async with servers(tmp_path) as pools, routed(pools.urls) as http, OpenClawClient(str(http.base_url)) as client:
        client.url = client.url.rstrip("/")
        lease = (await client.allocate("t", "uid"))["lease_id"]
        await client.reset(lease, INLINE)
        await client.heartbeat(lease)
        assert await client.exec_tool(lease, "shell_exec", {"id": "a", "command": "ls"}) == "ran 1"
        assert await client.evaluate(lease) == 1.0
        await client.close(lease)
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.heartbeat(lease)


async def test_a_task_stays_on_its_server_and_a_full_server_spills_over(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=4, runs_per_task=2)) as pools, routed(pools.urls) as http:
        first = pools.first_for("t")
        for _ in range(2):
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
        assert len(pools.services[first].table) == 2
        for _ in range(2):
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
        assert [len(service.table) for service in pools.services.values()] == [2, 2]
        reply = await http.post("/allocate", json={"task_key": "t"})
        assert (reply.status_code, reply.json()["code"]) == (429, "RUN_SLOTS_EXHAUSTED")
        assert int(reply.headers["retry-after"]) > 0
        assert "longshore_router_spilled_total 4.0" in (await http.get("/metrics")).text


async def test_an_unreachable_server_is_skipped(tmp_path: Path):
    async with servers(tmp_path, 1) as pools:
        gone = "http://127.0.0.1:9"
        async with routed([gone, *pools.urls]) as http:
            for key in map(str, range(10)):
                assert (await call(http, "/allocate", task_key=key))[0] == 200
            known_servers = (await http.get("/status")).json()["workers"]
            assert [each["ok"] for each in known_servers] == [False, True]
        async with routed([gone]) as http:
            assert (await call(http, "/allocate", task_key="t"))[0] == 502


async def test_an_allocation_that_may_have_arrived_is_not_sent_to_another_server(tmp_path: Path):
    """This holds even if the server that got it has died: otherwise two hold a slot for one client."""
    dying = DyingServer()
    async with dying.listening() as url, servers(tmp_path, 1) as pools, routed([url, *pools.urls]) as http:
        urls = [url, *pools.urls]
        key = next(key for key in map(str, range(1000)) if rank_nodes(key, "", map(PoolServerNode, urls))[0].url == url)
        status, reply = await call(http, "/allocate", task_key=key, request_id="r")
        assert (status, dying.arrived) == (502, ["/status", "/allocate"])
        assert "Worker unreachable" in reply["error"]
        assert [each["ok"] for each in (await http.get("/status")).json()["workers"]] == [False, True]
        assert not len(pools.services[pools.urls[0]].table)


async def test_a_server_behind_dropped_packets_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The answers of the others, for example that they are full, still count."""
    monkeypatch.setattr("sandbox.router.pool_servers.CONNECT_S", 0.5)
    with dropping_host() as gone:
        async with servers(tmp_path, 1, LeaseLimits(1, 1)) as pools, routed([gone, *pools.urls]) as http:
            assert (await call(http, "/allocate", task_key="t"))[0] == 200
            assert (await call(http, "/allocate", task_key="t"))[1]["code"] == "RUN_SLOTS_EXHAUSTED"


async def test_a_lease_id_survives_a_router_with_another_order(tmp_path: Path):
    async with servers(tmp_path) as pools:
        async with routed(pools.urls) as http:
            _, lease = await call(http, "/allocate", task_key="t")
        async with routed([*reversed(pools.urls)]) as http:
            assert (await call(http, "/heartbeat", lease_id=lease["lease_id"]))[0] == 200
            for unknown in ("run-1", "00000000:run-1", ":", "a:", lease["lease_id"].split(":")[0] + ":run-2"):
                status, reply = await call(http, "/heartbeat", lease_id=unknown)
                assert (status, reply["code"]) == (404, "UNKNOWN_LEASE")


async def test_requests_that_are_not_idempotent_are_sent_once():
    for path, body, times in (
        ("/exec_tool", {"tool_call": {"name": "x"}}, 1),
        ("/exec_tool", {"tool_call": {"name": "x"}, "request_id": "r"}, 2),
        ("/heartbeat", {}, 2),
        ("/allocate", {"task_key": "t"}, 1),
        ("/allocate", {"task_key": "t", "request_id": "r"}, 2),
    ):
        cutting = CuttingServer()
        async with cutting.listening() as url, routed([url]) as http:
            lease = f"{PoolServerNode(url).key}:run-1"
            status, _ = await call(http, path, lease_id=lease, **body)
            assert (path, cutting.arrived.count(path), status) == (path, times, 502)


async def test_a_client_that_hangs_up_on_the_router_finds_its_command_done_once(tmp_path: Path):
    async with servers(tmp_path, 1) as pools, routed(pools.urls) as http:
        _, lease = await call(http, "/allocate", task_key="t")
        await call(http, "/reset", lease_id=lease["lease_id"], task_meta=INLINE)
        (provider,) = pools.providers.values()
        sandbox = provider.opened[0]
        sandbox.may_finish = asyncio.Event()
        body = {"lease_id": lease["lease_id"], "tool_call": {"name": "shell_exec", "arguments": {"command": "pay"}}}
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/exec_tool", json=body, timeout=0.5)
        async with asyncio.TaskGroup() as group:
            retry = group.create_task(http.post("/exec_tool", json=body))
            await asyncio.sleep(0.2)
            sandbox.may_finish.set()
        assert retry.result().json()["observation"] == "ran 1"
        assert sandbox.calls == ["shell_exec pay"]


BUILD = ImageBuild({"Dockerfile": b"FROM base\n"})


@pytest.mark.parametrize(
    ("image", "task"),
    [
        ("base:1", Task("t", "", image="base:1")),
        ("base:latest", Task("t", "", image="base")),
        (built_image_name(BUILD), Task("t", "", build=BUILD)),
    ],
)
async def test_a_server_that_has_the_image_is_asked_first(tmp_path: Path, image: str, task: Task):
    async with servers(tmp_path) as pools:
        has = pools.urls[0]
        for url, service in pools.services.items():
            service.images = service.provider.names = (image,) if url == has else ()
        async with routed(pools.urls) as http, RemotePool(str(http.base_url), acquire_s=60.0) as pool:
            for key in map(str, range(8)):
                await pool.open(replace(task, id=key))
            assert len(pools.services[has].table) == 8
            if task.image:
                assert (await call(http, "/allocate", task_key="8", image=task.image))[0] == 200
                assert len(pools.services[has].table) == 9


async def test_a_group_is_placed_as_a_whole(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=1, runs_per_task=3)) as pools, routed(pools.urls) as http:
        status, one = await call(http, "/allocate_group", task_id="g", n_slots=2)
        assert status == 200
        assert sorted(len(service.table) for service in pools.services.values()) == [0, 2]
        assert (await call(http, "/allocate_group", task_id="g", n_slots=2))[1] == one
        assert (await call(http, "/release_group", task_id="g"))[1]["released_slots"] == 2
        status, both = await call(http, "/allocate_group", task_id="h", n_slots=5)
        assert status == 200
        assert len({each["slot_id"] for each in both["assignments"]}) == 5
        assert sorted(len(service.table) for service in pools.services.values()) == [2, 3]
        slot = both["assignments"][4]["slot_id"]
        assert (await call(http, "/reset", lease_id=slot, task_meta=INLINE))[0] == 200
        await call(http, "/release_group", task_id="h")
        reply = await http.post("/allocate_group", json={"task_id": "i", "n_slots": 7})
        assert (reply.status_code, "retry-after" in reply.headers) == (422, False)
        await call(http, "/allocate", task_key="t")
        reply = await http.post("/allocate_group", json={"task_id": "i", "n_slots": 6})
        assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        assert sorted(len(service.table) for service in pools.services.values()) == [0, 1]


async def test_a_group_name_conflict_on_one_server_leaves_no_slots_on_the_others(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=2)) as pools, routed(pools.urls) as http:
        empty, held = pools.services.values()
        held.allocate_group("g", 1)
        reply = await http.post("/allocate_group", json={"task_id": "g", "n_slots": 6})
        assert (reply.status_code, reply.json()["code"]) == (409, "GROUP_CONFLICT")
        assert (len(empty.table), len(held.table)) == (0, 1)


async def test_a_group_that_holds_slots_keeps_its_size(tmp_path: Path):
    """This holds on one server or several, and for a router that did not allocate it."""
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=2)) as pools:
        async with routed(pools.urls) as http:
            for slots in (3, 6):
                status, group = await call(http, "/allocate_group", task_id="g", n_slots=slots)
                assert status == 200
                for other in (slots - 1, slots // 2, slots + 1):
                    status, reply = await call(http, "/allocate_group", task_id="g", n_slots=other)
                    assert (status, reply["code"]) == (409, "GROUP_CONFLICT")
                    assert reply["error"] == f"group g holds {slots} slots, not {other}: release it first"
                assert sum(len(service.table) for service in pools.services.values()) == slots
                if slots == 3:
                    await call(http, "/release_group", task_id="g")
        async with routed(pools.urls) as http:
            assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[1]["code"] == "GROUP_CONFLICT"
            _, again = await call(http, "/allocate_group", task_id="g", n_slots=6)
            assert {each["slot_id"] for each in again["assignments"]} == {
                each["slot_id"] for each in group["assignments"]
            }
            await call(http, "/close", lease_id=group["assignments"][0]["slot_id"])
            status, reply = await call(http, "/allocate_group", task_id="g", n_slots=6)
            assert (status, reply["error"]) == (409, "group g holds 5 slots, not 6: release it first")
            assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200


async def test_a_finished_group_can_be_allocated_again_in_another_size(tmp_path: Path):
    """It goes where there is room then, not where it was before."""
    async with servers(tmp_path, 2, LeaseLimits(tasks=1, runs_per_task=5)) as pools, routed(pools.urls) as http:
        assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200
        service = next(service for service in pools.services.values() if len(service.table))
        service.release_group("g")
        _, group = await call(http, "/allocate_group", task_id="g", n_slots=2)
        assert (len(group["assignments"]), len(service.table)) == (2, 2)
        service.release_group("g")
        service.allocate("other", "")
        assert (await call(http, "/allocate_group", task_id="g", n_slots=5))[0] == 200
        assert sorted(len(each.table) for each in pools.services.values()) == [1, 5]


async def test_a_group_of_an_unreachable_server_is_placed_on_another(tmp_path: Path):
    async with servers(tmp_path, 1) as pools, AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(pool_server(FakeProvider(), tmp_path / "gone"))
        urls = [url, *pools.urls]
        group = next(
            key for key in map(str, range(1000)) if rank_nodes(key, "", map(PoolServerNode, urls))[0].url == url
        )
        async with routed(urls) as http:
            assert (await call(http, "/allocate_group", task_id=group, n_slots=2))[0] == 200
            await stack.aclose()
            assert (await call(http, "/allocate_group", task_id=group, n_slots=3))[0] == 200
        assert len(pools.services[pools.urls[0]].table) == 3


async def test_a_repeated_allocation_keeps_its_slot_even_if_a_preferred_server_has_room(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=1)) as pools, routed(pools.urls) as http:
        first = pools.first_for("t")
        assert (await call(http, "/allocate", task_key="t", request_id="r"))[0] == 200
        _, spilled = await call(http, "/allocate", task_key="t", request_id="s")
        for lease in pools.services[first].table.all():
            pools.services[first].close(lease.id)
        _, again = await call(http, "/allocate", task_key="t", request_id="s")
        assert (again["lease_id"], again["reused"]) == (spilled["lease_id"], True)


async def test_a_server_that_never_answers_does_not_delay_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "ANSWER_S", 0.2)
    monkeypatch.setattr("sandbox.router.pool_servers.CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes what comes
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with servers(tmp_path, 1, LeaseLimits(tasks=1)) as pools, routed([url, *pools.urls]) as http:
            assert (await call(http, "/allocate_group", task_id="a", n_slots=2))[0] == 200
            assert (await call(http, "/allocate_group", task_id="b", n_slots=2))[0] == 503
            assert (await call(http, "/release_group", task_id="a"))[1]["released_slots"] == 2
            assert (await call(http, "/allocate_group", task_id="b", n_slots=2))[0] == 200


async def test_a_group_larger_than_one_task_s_slots_is_placed_on_one_server_or_split(tmp_path: Path):
    async with servers(tmp_path, 2, LeaseLimits(tasks=2, runs_per_task=4)) as pools, routed(pools.urls) as http:
        assert (await call(http, "/allocate_group", task_id="g", n_slots=8))[0] == 200
        assert sorted(len(service.table) for service in pools.services.values()) == [0, 8]
        await call(http, "/release_group", task_id="g")
        assert (await call(http, "/allocate_group", task_id="h", n_slots=16))[0] == 200
        assert [len(service.table) for service in pools.services.values()] == [8, 8]


async def test_one_token_guards_router_and_servers(tmp_path: Path):
    guarded = check_access("127.0.0.1", TOKEN, no_auth=False)
    async with (
        pool_server(FakeProvider(), tmp_path, access=guarded) as (url, _),
        routed([url], TOKEN, guarded) as http,
    ):
        assert (await call(http, "/allocate", task_key="t"))[0] == 401
        http.headers["authorization"] = f"Bearer {TOKEN}"
        assert (await call(http, "/allocate", task_key="t"))[0] == 200


def test_a_router_with_missing_or_invalid_servers_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("WORKER_URLS", raising=False)
    assert parse_server_urls(" http://a:1/ ,http://b:2,http://a:1") == ("http://a:1", "http://b:2")
    with pytest.raises(UserError, match="http://host:port"):
        parse_server_urls("a:1")
    assert main_guard(lambda: COMMAND.call([])) == 2
    assert main_guard(lambda: COMMAND.call(["--servers", "http://a:1", "--host", "10.0.0.1"])) == 2
    stderr = capsys.readouterr().err
    assert "WORKER_URLS" in stderr
    assert "--no-auth" in stderr
