"""The router's servers: their last known status, and single requests to one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import orjson

from protocol.errors import InfraError
from sandbox.http.json_client import BUSY_STATUSES, RETRY_PAUSE_S, JsonHttpClient
from sandbox.http.messages import ROUTER_SPARE_S
from sandbox.http.streams import AGENT_CONNECTION_PATH, LEASE_PARAMETER, NO_CONNECTION_S
from sandbox.router.placement import PoolServerNode, is_repeatable

_REFRESH_INTERVAL_S = 5.0
CONNECT_S = 5.0


class PoolServerUnreachableError(InfraError):
    """A server did not answer. ``sent`` tells whether the request may have reached it."""

    def __init__(self, node: PoolServerNode, error: Exception, *, sent: bool) -> None:
        super().__init__(f"Worker unreachable: {node.url}: {type(error).__name__} {error}".rstrip())
        self.sent = sent


class PoolServerReply(NamedTuple):
    """A server's reply, with any status."""

    status: int
    body: dict[str, Any]
    retry_after_s: float

    @property
    def is_full(self) -> bool:
        """True if the server has no room, so that another one should be tried."""
        return self.status in BUSY_STATUSES


class RoutedPoolServers:
    """The servers of a router: ``async with RoutedPoolServers(urls, token, forward_s)`` refreshes their status
    regularly."""

    def __init__(self, urls: tuple[str, ...], token: str, forward_s: float) -> None:
        """``forward_s``: maximum seconds to wait for the reply to a request without a deadline."""
        self._nodes = {url: PoolServerNode(url) for url in urls}
        self._clients = {url: JsonHttpClient(url, token, connect_s=CONNECT_S) for url in urls}
        self.status: dict[str, dict[str, Any]] = {}
        """Last status reply of each server, or the reason why there is none."""
        self.counts: Counter[str] = Counter()
        self._forward_s = forward_s
        self._open = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()
        self._refreshing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for client in self._clients.values():
            await self._open.enter_async_context(client)
        await self._tasks.__aenter__()
        await self.refresh()
        self._refreshing = self._tasks.create_task(self._keep_refreshing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._open.aclose()

    @property
    def nodes(self) -> tuple[PoolServerNode, ...]:
        """All servers as their last status described them."""
        return tuple(self._nodes.values())

    async def _keep_refreshing(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_INTERVAL_S)
            await self.refresh()

    async def refresh(self, nodes: Iterable[PoolServerNode] | None = None) -> None:
        """Request the status of these servers, or of all."""
        async with asyncio.TaskGroup() as group:
            for node in self.nodes if nodes is None else nodes:
                group.create_task(self._refresh_one(node))

    async def _refresh_one(self, node: PoolServerNode) -> None:
        try:
            reply = await self._exchange("GET", node, "/status", None, CONNECT_S)
            pool = reply.body["pool"]
            slots = pool["max_tasks"] * pool["max_runs_per_task"]
            found = PoolServerNode(
                node.url,
                not pool.get("draining"),
                max(slots - pool["total_active_runs"], 0),
                frozenset(pool.get("images", ())),
                slots,
                pool.get("active_tasks", 0) < pool["max_tasks"],
                pool.get("groups", {}),
                pool.get("reserved", {}),
            )
        except (PoolServerUnreachableError, KeyError, TypeError) as error:
            self._mark_unreachable(node, error)
        else:
            self._nodes[node.url], self.status[node.url] = found, reply.body

    def _mark_unreachable(self, node: PoolServerNode, error: Exception) -> None:
        self._nodes[node.url] = replace(self._nodes[node.url], reachable=False, groups={}, reserved={})
        self.status[node.url] = {"ok": False, "error": f"{type(error).__name__}: {error}"}

    async def post(
        self, node: PoolServerNode, path: str, body: dict[str, Any], within_s: float | None = None
    ) -> PoolServerReply:
        """Send a request, and send it again if it was lost and may be repeated.

        Waits for ``within_s``, else until the request's deadline. Raises PoolServerUnreachableError.
        """
        self.counts["forwarded"] += 1
        try:
            return await self._exchange("POST", node, path, body, within_s)
        except PoolServerUnreachableError as error:
            self.counts["unreachable"] += 1
            if not error.sent or not is_repeatable(path, body):
                self._mark_unreachable(node, error)
                raise
        self.counts["repeated"] += 1
        await asyncio.sleep(RETRY_PAUSE_S)
        try:
            return await self._exchange("POST", node, path, body, within_s)
        except PoolServerUnreachableError as error:
            self._mark_unreachable(node, error)
            error.sent = True  # the first one may have arrived, whatever happened to the second
            raise

    @asynccontextmanager
    async def open_agent_connection(
        self, node: PoolServerNode, lease: str, body: AsyncIterable[bytes]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send the request that carries the next connection of a lease's agent program.

        Raises PoolServerUnreachableError.
        """
        path = f"{AGENT_CONNECTION_PATH}?{LEASE_PARAMETER}={lease}"
        try:
            async with self._clients[node.url].open_stream(path, body, NO_CONNECTION_S + ROUTER_SPARE_S) as reply:
                yield reply
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PoolServerUnreachableError(node, error, sent=True) from error

    async def _exchange(
        self, method: str, node: PoolServerNode, path: str, body: dict[str, Any] | None, within_s: float | None = None
    ) -> PoolServerReply:
        deadline_s = (body or {}).get("deadline_s")
        total_s = within_s or (deadline_s + ROUTER_SPARE_S if deadline_s else self._forward_s)
        try:
            reply = await self._clients[node.url].exchange(method, path, body, total_s)
            return PoolServerReply(reply.status, reply.json(), reply.retry_after_s)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise PoolServerUnreachableError(node, error, sent=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise PoolServerUnreachableError(node, error, sent=True) from error
