"""Runs the monitor as a separate process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from launch.bench.server_process import ServerProcess, serve_command
from launch.monitor.web.access import TOKEN_VARIABLE

_STOP_S = 10.0


@asynccontextmanager
async def serve_monitor(run_dir: Path) -> AsyncGenerator[ServerProcess]:
    """Serve a run on loopback, without a token.  Raises InfraError if the monitor does not start."""
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    async with serve_command("launch.monitor", str(run_dir), stop_s=_STOP_S, environment=environment) as server:
        yield server
