"""Servers of ours in the test's own event loop, on real sockets of the loopback device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from starlette.types import ASGIApp

from sandbox.agent_programs import AgentPrograms
from sandbox.http.auth import Access
from sandbox.http.connections import OpenConnections
from sandbox.http.serving import bind_listener, listener_url
from sandbox.http.uvicorn_connections import server_config
from sandbox.pool.leases import LeaseLimits
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider, SandboxProvider
from sandbox.providers.remote import RemotePool
from sandbox.router.app import create_app as create_router
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.server.app import create_app
from sandbox.server.journal import StateDirectory
from sandbox.server.lease_state import HostProvider
from sandbox.server.service import PoolService, PoolServiceSettings
from sandbox.server.task_source import TaskSource

LOOPBACK = Access("127.0.0.1")


@asynccontextmanager
async def serving(app: ASGIApp, connections: OpenConnections | None = None) -> AsyncGenerator[str]:
    """The server's address, while it runs."""
    with bind_listener("127.0.0.1", 0) as listener:
        limited = OpenConnections() if connections is None else connections
        server = _Quiet(server_config(app, limited, access_log=False, lifespan="on", timeout_graceful_shutdown=1))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.serve(sockets=[listener]))
            while not server.started and not running.done():  # noqa: ASYNC110  the server has no event for it
                await asyncio.sleep(0.005)
            try:
                yield listener_url(listener)
            finally:
                server.should_exit = True


class _Quiet(uvicorn.Server):
    """Leaves the process's signal handlers alone."""

    def install_signal_handlers(self) -> None:
        return

    def capture_signals(self):
        from contextlib import nullcontext

        return nullcontext()


@asynccontextmanager
async def pool_server(
    provider: HostProvider,
    state: Path,
    limits: LeaseLimits | None = None,
    access: Access = LOOPBACK,
    dataset: Path | None = None,
    now: Callable[[], float] = time.monotonic,
    **settings: float,
) -> AsyncGenerator[tuple[str, PoolService]]:
    """A pool server over ``provider``: its address and its service."""
    services: list[PoolService] = []

    @asynccontextmanager
    async def open_service() -> AsyncIterator[PoolService]:
        chosen = PoolServiceSettings(limits or LeaseLimits(), **settings)
        async with PoolService(chosen, provider, TaskSource(dataset), held, now) as service:
            services.append(service)
            yield service

    with StateDirectory(state) as held:
        async with serving(create_app(open_service, access)) as url:
            yield url, services[0]


@asynccontextmanager
async def provider_of_pool(
    pool: SandboxPool, kind: str, programs: AgentPrograms | None = None
) -> AsyncGenerator[SandboxProvider]:
    """The sandboxes of ``pool``: ``local``, of a pool ``server``, or of one behind a ``router``, with ``programs``."""
    if kind == "local":
        yield LocalProvider(pool)
        return
    async with AsyncExitStack() as stack:
        state = Path(stack.enter_context(TemporaryDirectory()))
        url, _ = await stack.enter_async_context(pool_server(LocalProvider(pool), state))
        if kind == "router":
            app = create_router(lambda: RoutedPoolServers((url,), "", 600.0), LOOPBACK)
            url = await stack.enter_async_context(serving(app))
        yield await stack.enter_async_context(RemotePool(url, acquire_s=60.0, programs=programs))
