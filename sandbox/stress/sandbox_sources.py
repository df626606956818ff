"""Sources of a run's sandboxes: a pool in this process, or a pool server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from protocol.errors import UserError
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.providers.remote import RemotePool, RemoteSandbox
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import CommandResult
from sandbox.stress.server_metrics import PoolServerMetrics
from sandbox.tasks.task import Task

RUNS_PER_TASK = 8
"""Leases of one task key: the pool server's default limit."""
FAULT_TASK = Task(id="stress-fault", instruction="")
"""Task of the sessions that faults target."""
_SESSION_S = 3600.0
_ACQUIRE_S = 120.0
_UNREACHABLE_S = 120.0
_WARM_S = 60.0


class HeldSandbox(Protocol):
    """One sandbox that the run holds."""

    @property
    def alive(self) -> bool: ...

    @property
    def container(self) -> str:
        """Id of the container; empty if only the server knows it."""
        ...

    @property
    def engine_url(self) -> str:
        """URL of its engine; empty if only the server knows it."""
        ...

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        """Run a command. Raises SandboxLost, SandboxDestroyed."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Read a file. Raises OSError, SandboxLost, SandboxDestroyed."""
        ...

    async def reattach(self) -> None:
        """Connect to the sandbox again after its stream broke. Raises SandboxLost or SandboxDestroyed if that fails."""
        ...

    async def close(self) -> None: ...


class SandboxSource(Protocol):
    async def open(self, task: Task) -> HeldSandbox:
        """Open a sandbox. Raises SandboxStartError."""
        ...

    async def wait_until_warm(self, count: int) -> bool:
        """Wait until a warm sandbox is ready; a local pool keeps ``count``. Returns False if none is kept."""
        ...


class LocalHeldSandbox:
    def __init__(self, pool: SandboxPool, session: SandboxSession) -> None:
        self._pool, self._session = pool, session
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def container(self) -> str:
        return self._session.container

    @property
    def engine_url(self) -> str:
        return self._session.engine.url

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        return await self._session.run(command, timeout_s)

    async def read_file(self, path: str) -> bytes:
        return await self._session.read_file(path)

    async def reattach(self) -> None:
        if not self._session.alive:
            await self._session.reattach()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._pool.close(self._session)


class PoolSource:
    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool

    async def open(self, task: Task) -> LocalHeldSandbox:
        return LocalHeldSandbox(self.pool, await self.pool.open(task))

    async def adopt(self, container: str) -> LocalHeldSandbox:
        """Adopt a sandbox of a dead process of the same pool. Raises SandboxLost."""
        return LocalHeldSandbox(self.pool, await self.pool.adopt(container, FAULT_TASK))

    async def wait_until_warm(self, count: int) -> bool:
        if self.pool.statistics().warm == 0:
            await self.pool.prewarm(task_for_session(0), count)
        return self.pool.statistics().warm > 0


class RemoteHeldSandbox:
    container = engine_url = ""

    def __init__(self, sandbox: RemoteSandbox) -> None:
        self._sandbox = sandbox

    @property
    def alive(self) -> bool:
        return self._sandbox.alive

    @property
    def lease_id(self) -> str:
        return self._sandbox.lease_id

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        return await self._sandbox.run(command, timeout_s)

    async def read_file(self, path: str) -> bytes:
        return await self._sandbox.read_file(path)

    async def reattach(self) -> None:
        """Do nothing: the server reconnects to the sandbox, and the next request to the server."""

    async def close(self) -> None:
        await self._sandbox.close()


class PoolServerSource:
    def __init__(self, pool: RemotePool, metrics: PoolServerMetrics) -> None:
        self.pool, self._metrics = pool, metrics

    async def open(self, task: Task) -> RemoteHeldSandbox:
        return RemoteHeldSandbox(await self.pool.open(task))

    async def take_over_lease(self, lease_id: str) -> RemoteHeldSandbox:
        """Use a lease that another client holds, or held."""
        return RemoteHeldSandbox(RemoteSandbox(self.pool, lease_id))

    async def wait_until_warm(self, count: int) -> bool:
        del count
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _WARM_S
        while await self._metrics.read("starts_running") and loop.time() < give_up:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.05)
        return await self._metrics.read("sandboxes_warm") > 0


def task_for_session(session: int) -> Task:
    """Return the task of a session; sessions share a task key as far as a server allows."""
    return Task(id=f"stress-{session // RUNS_PER_TASK}", instruction="")


@asynccontextmanager
async def open_pool_source(host: SandboxHost, name: str, capacity: int, starts: int) -> AsyncGenerator[PoolSource]:
    """Open a pool of this process on ``host``'s engine, with exactly ``starts`` starts at once, like its floor."""
    settings = PoolSettings(
        name,
        name,
        capacity,
        start_concurrency=starts,
        start_concurrency_min=starts,
        start_concurrency_max=starts,
        containers=ContainerSettings(max_lifetime_s=_SESSION_S),
    )
    async with SandboxPool(settings, host) as pool:
        yield PoolSource(pool)


@asynccontextmanager
async def open_server_source(metrics: PoolServerMetrics, sessions: int) -> AsyncGenerator[PoolServerSource]:
    """Open a source of the pool server's sandboxes. Raises UserError if none answers or it has too few leases."""
    slots = int(await metrics.read("lease_slots"))
    if slots < sessions:
        raise UserError(
            f"{metrics.url} has {slots} leases, but {sessions} are needed: start it with --max-tasks "
            f"{-(-sessions // RUNS_PER_TASK) + 1} or more, or use fewer --sessions"
        )
    async with RemotePool(metrics.url, metrics.token, acquire_s=_ACQUIRE_S, unreachable_s=_UNREACHABLE_S) as pool:
        yield PoolServerSource(pool, metrics)
