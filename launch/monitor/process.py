"""Starts the monitor as a separate process of a run.  The run continues if it fails to start or dies.

The process has its own session, so that Ctrl-C reaches only the driver, which stops while the page still shows it.  It
carries the run's token, so that :mod:`launch.processes.process_reaper` ends it if the driver cannot.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from launch.processes.background_tasks import stop_process

_START_S, _STOP_S = 20.0, 3.0


@asynccontextmanager
async def run_monitor_process(run_dir: Path, *, port: int = 0, log: Path) -> AsyncGenerator[str]:
    """Yield the page's URL, or an empty text if the start failed (``log`` says why), and stop the process at exit."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "launch.monitor", str(run_dir), "--port", str(port))
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251  # the driver runs asyncio's own loop
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield await _first_line(process)
    finally:
        await stop_process(process, _STOP_S)


async def _first_line(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        return ""
    try:
        async with asyncio.timeout(_START_S):
            return (await process.stdout.readline()).decode().strip()
    except TimeoutError:
        return ""
