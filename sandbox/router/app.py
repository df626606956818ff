"""The router's HTTP side: a slot is looked for, everything else goes to its lease's worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import orjson
from starlette.applications import Starlette

from sandbox.edge.app import application, exposition
from sandbox.edge.auth import Access
from sandbox.edge.endpoint import Call, Endpoint
from sandbox.leases import UnknownLease
from sandbox.router.groups import Groups
from sandbox.router.placement import Node, lease_id, order, parse_lease, remember
from sandbox.router.workers import Answer, Workers, WorkerUnreachable
from sandbox.server import failures
from sandbox.server import messages as m
from sandbox.server.app import ON_LEASE
from sandbox.server.messages import Reply, WireError

Body = TypeVar("Body", bound=m.Message)
_ALL_FULL_RETRY_S = 2.0


class RouterStatus(m.Done):
    num_workers: int
    workers: list[dict[str, Any]]


def create_app(open_workers: Callable[[], Workers], access: Access) -> Starlette:
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_workers() as workers:
            handlers.workers, handlers.groups = workers, Groups(workers)
            yield

    title = "longshore sandbox router"
    return application(title, handlers.table(), running, lambda: _metrics(handlers.workers), access)


class _Handlers:
    workers: Workers
    groups: Groups

    def __init__(self) -> None:
        self.gave: dict[tuple[str, str], str] = {}
        """Task key and request id of an allocation → url of the worker that gave the slot."""

    def table(self) -> list[Endpoint[Any]]:
        return [
            Endpoint("/healthz", "whether it answers", None, m.Done, self.health),
            Endpoint("/status", "every worker's", None, RouterStatus, self.status, (401,)),
            Endpoint("/allocate", "a slot", m.Allocate, m.Allocated, self.allocate, (401, 429, 502, 503)),
            Endpoint(
                "/allocate_group", "slots, all or none", m.AllocateGroup, m.GroupAllocated, self.allocate_group,
                (401, 409, 422, 502, 503),
            ),
            Endpoint("/release_group", "end a group", m.ReleaseGroup, m.GroupReleased, self.release_group, (401, 502)),
            self._on_lease("/heartbeat", "renew a lease", m.Heartbeat, m.Done),
            self._on_lease("/reset", "a fresh sandbox for the lease", m.Reset, m.ResetDone),
            self._on_lease("/exec_tool", "call a tool", m.ExecTool, m.Observation),
            self._on_lease("/evaluate", "run the hidden tests", m.Evaluate, m.Score),
            self._on_lease("/close", "end a lease", m.Close, m.Closed),
            self._on_lease("/run", "a command in the lease's shell", m.Run, m.RunDone),
            self._on_lease("/write_files", "files in", m.WriteFiles, m.Done),
            self._on_lease("/read_file", "a file out", m.ReadFile, m.FileRead),
            self._on_lease("/read_tree", "a folder's files out", m.ReadTree, m.TreeRead),
        ]  # fmt: skip

    def _on_lease(self, path: str, summary: str, body: type[m.OnLease], reply: type[m.Message]) -> Endpoint[Any]:
        async def do(call: Call[m.OnLease]) -> Reply:
            found = parse_lease(call.body.lease_id, self.workers.nodes)
            if found is None:
                raise UnknownLease(call.body.lease_id)
            node, lease = found
            request = call.body.model_dump(mode="json") | {"lease_id": lease}
            return await _While(call).does(lambda: self._forward(node, path, request))

        return Endpoint(path, summary, body, reply, do, (*ON_LEASE, 502))

    async def _forward(self, node: Node, path: str, request: dict[str, Any]) -> Reply:
        return _reply(await self.workers.ask(node, path, request))

    async def health(self, _: Call[m.Message]) -> Reply:
        return Reply(200, m.Done())

    async def status(self, _: Call[m.Message]) -> Reply:
        known = [
            {"worker_idx": index, "url": node.url, **self.workers.status.get(node.url, {"ok": False})}
            for index, node in enumerate(self.workers.nodes)
        ]
        return Reply(200, RouterStatus(num_workers=len(known), workers=known))

    async def allocate(self, call: Call[m.Allocate]) -> Reply:
        return await _While(call).does(lambda: self._place(call.body))

    async def _place(self, asked: m.Allocate) -> Reply:
        """The first worker that has room.  A request that may have arrived somewhere is not sent to another.  Who
        gave a slot for it before is asked first: a repeated request gets that one again."""
        request = asked.model_dump(mode="json")
        full: list[Answer] = []
        for node in self._ordered(asked):
            try:
                answer = await self.workers.ask(node, "/allocate", request)
            except WorkerUnreachable as error:
                if error.sent:
                    raise WireError(502, "WORKER_UNREACHABLE", str(error), retry_after_s=_ALL_FULL_RETRY_S) from error
                continue
            if not answer.full:
                if answer.status == 200:
                    answer.body["lease_id"] = lease_id(node, answer.body["lease_id"])
                    self._remember(asked, node)
                return _reply(answer)
            self.workers.counts["spilled"] += 1
            full.append(answer)
        if not full:
            raise WireError(
                502, "WORKER_UNREACHABLE", "no worker can be reached: see /status", retry_after_s=_ALL_FULL_RETRY_S
            )
        return _reply(min(full, key=lambda answer: answer.retry_after_s))

    def _ordered(self, asked: m.Allocate) -> list[Node]:
        gave = self.gave.get((asked.task_key, asked.request_id or ""))
        return sorted(order(asked.task_key, asked.image, self.workers.nodes), key=lambda node: node.url != gave)

    def _remember(self, asked: m.Allocate, node: Node) -> None:
        if asked.request_id:
            remember(self.gave, (asked.task_key, asked.request_id), node.url)

    async def allocate_group(self, call: Call[m.AllocateGroup]) -> Reply:
        slots = await (self.groups.take(call.body) if call.body.request_id else self.groups.allocate(call.body))
        node_url = str(call.request.base_url).rstrip("/")
        given = [m.Assignment(node_url=node_url, slot_id=slot) for slot in slots.ids]
        return Reply(200, m.GroupAllocated(task_id=call.body.task_id, assignments=given, ttl_s=slots.ttl_s))

    async def release_group(self, call: Call[m.ReleaseGroup]) -> Reply:
        released = await self.groups.release(call.body.task_id)
        return Reply(200, m.GroupReleased(task_id=call.body.task_id, released_slots=released))


class _While(Generic[Body]):
    """Work that ends when its client goes: the worker then knows that nobody got its reply."""

    def __init__(self, call: Call[Body]) -> None:
        self._call = call

    async def does(self, work: Callable[[], Awaitable[Reply]]) -> Reply:
        reply = WireError(400, failures.BAD_REQUEST, "the client has gone").reply()

        async def doing() -> None:
            nonlocal reply
            try:
                reply = await work()
            except WireError as error:
                reply = error.reply()
            except WorkerUnreachable as error:
                reply = WireError(502, "WORKER_UNREACHABLE", str(error)).reply()
            watch.cancel()

        async def watching() -> None:
            await self._call.gone()
            task.cancel()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(doing())
            watch = group.create_task(watching())
        return reply


def _reply(answer: Answer) -> Reply:
    return Reply(answer.status, orjson.dumps(answer.body), answer.retry_after_s)


def _metrics(workers: Workers) -> bytes:
    nodes = workers.nodes
    reachable = [node for node in nodes if node.reachable]
    about = {
        "forwarded": "requests sent to workers",
        "repeated": "sent a second time, where that does no harm",
        "spilled": "allocations that a full worker refused",
        "unreachable": "requests that found no worker",
    }
    gauges = {
        "workers": ("workers", len(nodes)),
        "workers_reachable": ("workers that answer", len(reachable)),
        "free_slots": ("slots, as last told", sum(node.free for node in reachable)),
    }
    return exposition("longshore_router", gauges, {name: (what, workers.counts[name]) for name, what in about.items()})
