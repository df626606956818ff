"""Servers of ours in the test's own event loop, on real sockets of the loopback device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from sandbox.http.auth import Access
from sandbox.http.serving import bind_listener, listener_url
from sandbox.pool.leases import LeaseLimits
from sandbox.server.app import create_app
from sandbox.server.journal import StateDirectory
from sandbox.server.lease_state import HostProvider
from sandbox.server.service import PoolService, PoolServiceSettings
from sandbox.server.task_source import TaskSource

LOOPBACK = Access("127.0.0.1")


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncGenerator[str]:
    """The server's address, while it runs."""
    with bind_listener("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        server = _Quiet(config)
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
