"""Several pool servers without a router: each task has its own order of them.

By rendezvous hashing the sandboxes of a task, and so of a group, are on one server while that has room, and the order
survives a restart of either side. A server that provides no sandbox within its share of the time is skipped; the task's
own fault is raised at once. A router knows how full each server is, and balances better.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxStartError, TaskFault
from sandbox.http.server_urls import rank_urls
from sandbox.providers.remote import RemotePool, RemoteSandbox
from sandbox.tasks.task import Task

_UNREACHABLE_S = 30.0


class PoolServers:
    """The pool servers of a run: ``async with PoolServers(urls) as servers: sandbox = await servers.open(task)``."""

    def __init__(
        self, urls: Sequence[str], token: str = "", *, acquire_s: float, programs: AgentPrograms | None = None
    ) -> None:
        """``acquire_s`` is the maximum wait for a sandbox in seconds, over all servers; ``programs`` are those of an
        agent, which each sandbox has."""
        share_s = acquire_s / len(urls)
        self._pools = {
            url: RemotePool(
                url, token, acquire_s=share_s, unreachable_s=min(_UNREACHABLE_S, share_s), programs=programs
            )
            for url in urls
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
        """Open a sandbox.

        Raises SandboxStartError with each server's message (TaskFault if the task itself is at fault), and UserError
        for a task that a server refuses.
        """
        reasons: list[str] = []
        for url in rank_urls(task.id, self._pools):
            try:
                return await self._pools[url].open(task, deadline_s)
            except TaskFault:
                raise
            except SandboxStartError as error:
                reasons.append(str(error))
        raise SandboxStartError("; ".join(reasons))
