"""The router's side of its workers: what it knows of them, and one request to one of them."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import orjson

from protocol.errors import InfraError
from sandbox.http.messages import ROUTER_SPARE_S
from sandbox.router.placement import WorkerNode, is_repeatable

_LOOK_S = 5.0
_CONNECT_S = 5.0
_AGAIN_S = 0.2


class WorkerUnreachable(InfraError):
    """``sent``: the request may have arrived all the same."""

    def __init__(self, node: WorkerNode, error: Exception, *, sent: bool) -> None:
        super().__init__(f"Worker unreachable: {node.url}: {type(error).__name__} {error}".rstrip())
        self.sent = sent


class WorkerReply(NamedTuple):
    status: int
    body: dict[str, Any]
    retry_after_s: float

    @property
    def is_full(self) -> bool:
        """Ask another one."""
        return self.status in {429, 503}


class RouterWorkers:
    """``async with Workers(urls) as workers``: looks at each every few seconds."""

    def __init__(self, urls: tuple[str, ...], token: str, forward_s: float) -> None:
        """``forward_s``: longest wait for the answer to a request that carries no deadline."""
        self._nodes = {url: WorkerNode(url) for url in urls}
        self.status: dict[str, dict[str, Any]] = {}
        """Last reply of each, or why there is none."""
        self.counts: Counter[str] = Counter()
        self._headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        self._forward_s = forward_s
        self._http: aiohttp.ClientSession | None = None
        self._tasks = asyncio.TaskGroup()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=self._headers)
        await self._tasks.__aenter__()
        await self.refresh()
        self._looking = self._tasks.create_task(self._keep_looking())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            if self._http is not None:
                await asyncio.shield(self._http.close())

    @property
    def nodes(self) -> tuple[WorkerNode, ...]:
        return tuple(self._nodes.values())

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.refresh()

    async def refresh(self, nodes: Iterable[WorkerNode] | None = None) -> None:
        """Ask these workers, or all, how they are."""
        async with asyncio.TaskGroup() as group:
            for node in self.nodes if nodes is None else nodes:
                group.create_task(self._look_at(node))

    async def _look_at(self, node: WorkerNode) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                answer = await self._exchange("GET", node, "/status", None)
            pool = answer.body["pool"]
            slots = pool["max_tasks"] * pool["max_runs_per_task"]
            found = WorkerNode(
                node.url,
                not pool.get("draining"),
                max(slots - pool["total_active_runs"], 0),
                frozenset(pool.get("images", ())),
                slots,
                pool.get("active_tasks", 0) < pool["max_tasks"],
                pool.get("groups", {}),
                pool.get("reserved", {}),
            )
        except (WorkerUnreachable, TimeoutError, KeyError, TypeError) as error:
            self._lost(node, error)
        else:
            self._nodes[node.url], self.status[node.url] = found, answer.body

    def _lost(self, node: WorkerNode, error: Exception) -> None:
        self._nodes[node.url] = replace(self._nodes[node.url], reachable=False, groups={}, reserved={})
        self.status[node.url] = {"ok": False, "error": f"{type(error).__name__}: {error}"}

    async def post(
        self, node: WorkerNode, path: str, body: dict[str, Any], within_s: float | None = None
    ) -> WorkerReply:
        """Once, and once more where that does no harm, within so long or by the deadline that the request carries.

        Raises WorkerUnreachable.
        """
        self.counts["forwarded"] += 1
        try:
            return await self._exchange("POST", node, path, body, within_s)
        except WorkerUnreachable as error:
            self.counts["unreachable"] += 1
            if not error.sent or not is_repeatable(path, body):
                self._lost(node, error)
                raise
        self.counts["repeated"] += 1
        await asyncio.sleep(_AGAIN_S)
        try:
            return await self._exchange("POST", node, path, body, within_s)
        except WorkerUnreachable as error:
            self._lost(node, error)
            error.sent = True  # the first may have arrived, whatever became of the second
            raise

    async def _exchange(
        self, method: str, node: WorkerNode, path: str, body: dict[str, Any] | None, within_s: float | None = None
    ) -> WorkerReply:
        if self._http is None:
            raise RuntimeError("use `async with Workers(...)`")
        data = None if body is None else io.BytesIO(json.dumps(body).encode())  # orjson refuses integers above 64 bits
        carried = (body or {}).get("deadline_s")
        total = within_s or (carried + ROUTER_SPARE_S if carried else self._forward_s)
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=_CONNECT_S)
        try:
            async with self._http.request(method, node.url + path, data=data, timeout=timeout) as response:
                raw = await response.read()
                after = response.headers.get("retry-after", "")
                return WorkerReply(response.status, orjson.loads(raw), float(after) if after.isdigit() else 0.0)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise WorkerUnreachable(node, error, sent=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise WorkerUnreachable(node, error, sent=True) from error
