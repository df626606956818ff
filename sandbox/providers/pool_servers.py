"""Several pool servers without a router between: each task has its own order of them.

By rendezvous hashing a task's sandboxes, and so a group's, are on one server as long as that gives them, and the order
outlives a restart of either side.  A server that gives none in its share of the time is passed over; what is the task's
own fault is nobody else's, and is raised at once.  A router knows how full each is, and does this better.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from sandbox.errors import SandboxStartError, TaskFault
from sandbox.http.server_urls import rank_urls
from sandbox.providers.remote import RemotePool, RemoteSandbox
from sandbox.tasks.task import Task

_UNREACHABLE_S = 30.0


class PoolServers:
    """``async with PoolServers(urls) as servers: sandbox = await servers.open(task)``."""

    def __init__(self, urls: Sequence[str], token: str = "", *, acquire_s: float = 600.0) -> None:
        """``acquire_s``: longest wait for a sandbox, over all servers."""
        share_s = acquire_s / len(urls)
        self._pools = {
            url: RemotePool(url, token, acquire_s=share_s, unreachable_s=min(_UNREACHABLE_S, share_s)) for url in urls
        }
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for pool in self._pools.values():
                await stack.enter_async_context(pool)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def open(self, task: Task, deadline_s: float | None = None) -> RemoteSandbox:
        """Raises SandboxStartError with what each server said (TaskFault for what is the task's own doing), and
        UserError for a task that a server refuses."""
        said: list[str] = []
        for url in rank_urls(task.id, self._pools):
            try:
                return await self._pools[url].open(task, deadline_s)
            except TaskFault:
                raise
            except SandboxStartError as error:
                said.append(str(error))
        raise SandboxStartError("; ".join(said))
