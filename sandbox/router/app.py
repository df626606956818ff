"""The router's HTTP endpoints: it allocates slots, and forwards every other request to its lease's server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import orjson
from starlette.applications import Starlette

from sandbox.http import failures
from sandbox.http import messages as m
from sandbox.http.application import create_application, prometheus_exposition
from sandbox.http.auth import Access
from sandbox.http.endpoints import HttpCall, HttpEndpoint
from sandbox.http.failures import LEASE_ERROR_STATUSES
from sandbox.http.messages import HttpError, HttpReply
from sandbox.http.streams import AGENT_CONNECTION_PATH, StreamCall, StreamEndpoint
from sandbox.pool.leases import UnknownLease
from sandbox.router.groups import SlotGroups
from sandbox.router.placement import (
    PoolServerNode,
    parse_router_lease_id,
    rank_nodes,
    remember_bounded,
    router_lease_id,
)
from sandbox.router.pool_servers import PoolServerReply, PoolServerUnreachableError, RoutedPoolServers

Body = TypeVar("Body", bound=m.ApiMessage)
_ALL_FULL_RETRY_S = 2.0


class RouterStatus(m.OkReply):
    """The status of every server."""

    num_workers: int
    workers: list[dict[str, Any]]


def create_app(open_servers: Callable[[], RoutedPoolServers], access: Access) -> Starlette:
    """Build the application; ``open_servers`` is called when the server starts."""
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_servers() as servers:
            handlers.servers, handlers.groups = servers, SlotGroups(servers)
            yield

    return create_application(
        "longshore sandbox router",
        handlers.table(),
        running,
        lambda: _metrics(handlers.servers),
        access,
        more_routes=[StreamEndpoint(handlers.carry_agent_connection).route(AGENT_CONNECTION_PATH)],
    )


class _Handlers:
    servers: RoutedPoolServers
    groups: SlotGroups

    def __init__(self) -> None:
        self._gave: dict[tuple[str, str], str] = {}
        """URL of the server that gave a slot, by the allocation's task key and request id."""

    def table(self) -> list[HttpEndpoint[Any]]:
        return [
            HttpEndpoint("/healthz", "whether it answers", None, m.OkReply, self.health),
            HttpEndpoint("/status", "every server's", None, RouterStatus, self.status, (401,)),
            HttpEndpoint(
                "/allocate", "a slot", m.AllocateRequest, m.AllocateReply, self.allocate, (401, 429, 502, 503)
            ),
            HttpEndpoint(
                "/allocate_group",
                "slots, all or none",
                m.AllocateGroupRequest,
                m.AllocateGroupReply,
                self.allocate_group,
                (401, 409, 422, 502, 503),
            ),
            HttpEndpoint(
                "/release_group",
                "end a group",
                m.ReleaseGroupRequest,
                m.ReleaseGroupReply,
                self.release_group,
                (401, 502),
            ),
            self._on_lease("/heartbeat", "renew a lease", m.HeartbeatRequest, m.OkReply),
            self._on_lease("/reset", "a fresh sandbox for the lease", m.ResetRequest, m.ResetReply),
            self._on_lease("/exec_tool", "call a tool", m.ExecToolRequest, m.ExecToolReply),
            self._on_lease("/evaluate", "run the hidden tests", m.EvaluateRequest, m.EvaluateReply),
            self._on_lease("/begin_step", "a step of the task", m.BeginStepRequest, m.OkReply),
            self._on_lease("/run_agent", "an agent's program in the lease's shell", m.RunAgentRequest, m.RunAgentReply),
            self._on_lease("/interrupt", "end it", m.InterruptRequest, m.OkReply),
            self._on_lease("/close", "end a lease", m.CloseRequest, m.CloseReply),
            self._on_lease("/run", "a command in the lease's shell", m.RunCommandRequest, m.RunCommandReply),
            self._on_lease("/write_files", "files in", m.WriteFilesRequest, m.OkReply),
            self._on_lease("/read_file", "a file out", m.ReadFileRequest, m.ReadFileReply),
            self._on_lease("/read_tree", "a folder's files out", m.ReadTreeRequest, m.ReadTreeReply),
        ]

    def _on_lease(
        self, path: str, summary: str, body: type[m.LeaseRequest], reply: type[m.ApiMessage]
    ) -> HttpEndpoint[Any]:
        async def do(call: HttpCall[m.LeaseRequest]) -> HttpReply:
            node, lease = self._find_lease(call.body.lease_id)
            request = await asyncio.to_thread(call.body.model_dump, mode="json") | {"lease_id": lease}
            return await _UntilClientGone(call).run(lambda: self._forward(node, path, request))

        return HttpEndpoint(path, summary, body, reply, do, (*LEASE_ERROR_STATUSES, 502))

    def _find_lease(self, lease_id: str) -> tuple[PoolServerNode, str]:
        """Return the server of a lease and its name there.  Raises UnknownLease."""
        if (found := parse_router_lease_id(lease_id, self.servers.nodes)) is None:
            raise UnknownLease(lease_id)
        return found

    async def carry_agent_connection(self, call: StreamCall) -> None:
        """Carry a connection on to the lease's server."""
        node, lease = self._find_lease(call.lease_id)
        async with self.servers.open_agent_connection(node, lease, call.request.stream()) as reply:
            await call.begin(reply.status)
            async for data in reply.content.iter_any():
                await call.write(data)

    async def _forward(self, node: PoolServerNode, path: str, request: dict[str, Any]) -> HttpReply:
        return _reply(await self.servers.post(node, path, request))

    async def health(self, _: HttpCall[m.ApiMessage]) -> HttpReply:
        return HttpReply(200, m.OkReply())

    async def status(self, _: HttpCall[m.ApiMessage]) -> HttpReply:
        known = [
            {"worker_idx": index, "url": node.url, **self.servers.status.get(node.url, {"ok": False})}
            for index, node in enumerate(self.servers.nodes)
        ]
        return HttpReply(200, RouterStatus(num_workers=len(known), workers=known))

    async def allocate(self, call: HttpCall[m.AllocateRequest]) -> HttpReply:
        return await _UntilClientGone(call).run(lambda: self._allocate(call.body))

    async def _allocate(self, body: m.AllocateRequest) -> HttpReply:
        """Request a slot from the servers in order.

        A request that may have arrived at one server is not sent to another. The server that gave a slot for the same
        request before comes first and gives that one again.
        """
        request = body.model_dump(mode="json")
        full: list[PoolServerReply] = []
        for node in self._ordered(body):
            try:
                answer = await self.servers.post(node, "/allocate", request)
            except PoolServerUnreachableError as error:
                if error.sent:
                    raise HttpError(502, "WORKER_UNREACHABLE", str(error), retry_after_s=_ALL_FULL_RETRY_S) from error
                continue
            if not answer.is_full:
                if answer.status == 200:
                    answer.body["lease_id"] = router_lease_id(node, answer.body["lease_id"])
                    self._remember(body, node)
                return _reply(answer)
            self.servers.counts["spilled"] += 1
            full.append(answer)
        if not full:
            raise HttpError(
                502, "WORKER_UNREACHABLE", "no server can be reached: see /status", retry_after_s=_ALL_FULL_RETRY_S
            )
        return _reply(min(full, key=lambda answer: answer.retry_after_s))

    def _ordered(self, body: m.AllocateRequest) -> list[PoolServerNode]:
        gave = self._gave.get((body.task_key, body.request_id or ""))
        return sorted(rank_nodes(body.task_key, body.image, self.servers.nodes), key=lambda node: node.url != gave)

    def _remember(self, body: m.AllocateRequest, node: PoolServerNode) -> None:
        if body.request_id:
            remember_bounded(self._gave, (body.task_key, body.request_id), node.url)

    async def allocate_group(self, call: HttpCall[m.AllocateGroupRequest]) -> HttpReply:
        slots = await (
            self.groups.allocate_member(call.body) if call.body.request_id else self.groups.allocate(call.body)
        )
        node_url = str(call.request.base_url).rstrip("/")
        given = [m.SlotAssignment(node_url=node_url, slot_id=slot) for slot in slots.ids]
        return HttpReply(200, m.AllocateGroupReply(task_id=call.body.task_id, assignments=given, ttl_s=slots.ttl_s))

    async def release_group(self, call: HttpCall[m.ReleaseGroupRequest]) -> HttpReply:
        released = await self.groups.release(call.body.task_id)
        return HttpReply(200, m.ReleaseGroupReply(task_id=call.body.task_id, released_slots=released))


class _UntilClientGone(Generic[Body]):
    """Cancels work when its client disconnects, so that the server knows that its reply is not needed."""

    def __init__(self, call: HttpCall[Body]) -> None:
        self._call = call

    async def run(self, work: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        reply = HttpError(400, failures.BAD_REQUEST, "the client has disconnected").reply()

        async def doing() -> None:
            nonlocal reply
            try:
                reply = await work()
            except HttpError as error:
                reply = error.reply()
            except PoolServerUnreachableError as error:
                reply = HttpError(502, "WORKER_UNREACHABLE", str(error)).reply()
            watch.cancel()

        async def watching() -> None:
            await self._call.wait_until_gone()
            task.cancel()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(doing())
            watch = group.create_task(watching())
        return reply


def _reply(answer: PoolServerReply) -> HttpReply:
    return HttpReply(answer.status, orjson.dumps(answer.body), answer.retry_after_s)


def _metrics(servers: RoutedPoolServers) -> bytes:
    nodes = servers.nodes
    reachable = [node for node in nodes if node.reachable]
    about = {
        "forwarded": "requests sent to servers",
        "repeated": "requests sent a second time, where that is harmless",
        "spilled": "allocations that a full server refused",
        "unreachable": "requests that found no server",
    }
    gauges = {
        "servers": ("servers", len(nodes)),
        "servers_reachable": ("servers that answer", len(reachable)),
        "free_slots": ("free slots at the last status", sum(node.free for node in reachable)),
    }
    return prometheus_exposition(
        "longshore_router", gauges, {name: (what, servers.counts[name]) for name, what in about.items()}
    )
