"""Starts the monitor as a process of its own, beside a run.  Should it fail to start or die, the run goes on.

Its session is its own too: Ctrl-C in a terminal is the driver's, which stops in order while the page still shows it.
It carries the run's token, so that :mod:`launch.processes.process_reaper` ends it where the driver could not.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from launch.processes.background_tasks import stop_process

_START_S, _STOP_S = 20.0, 3.0


@asynccontextmanager
async def run_monitor_process(run_dir: Path, *, port: int = 0, log: Path) -> AsyncGenerator[str]:
    """Yields the page's URL, or "" if it could not be started (``log`` says why); ends the process on the way out."""
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
        await stop_process(process, signal.SIGTERM, _STOP_S)


async def _first_line(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        return ""
    try:
        async with asyncio.timeout(_START_S):
            return (await process.stdout.readline()).decode().strip()
    except TimeoutError:
        return ""
