"""Runs an aiohttp application in the test's own event loop, on a real socket of the loopback device."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serve_on_loopback(app: web.Application, *, shutdown_timeout_s: float = 1.0) -> AsyncGenerator[int]:
    """Yield the server's port.  Handlers get ``shutdown_timeout_s`` seconds to end."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_timeout_s)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
