"""A command in a process of its own, which ends with the caller that waits for it."""

from __future__ import annotations

import asyncio
import signal
from typing import IO, NamedTuple

from launch.processes.background_tasks import stop_process

_STOP_S = 180.0


class ProcessExit(NamedTuple):
    pid: int
    exit_code: int


async def run_command(*words: str, log: IO[bytes] | None = None) -> ProcessExit:
    """Run it to its end, its standard output thrown away, its standard error in ``log`` or where ours is.  Where this
    is cancelled, it is interrupted as a person would, and waited for."""
    none = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(  # noqa: TID251  who runs programs runs asyncio's own loop
        *words, stdin=none, stdout=none, stderr=log, start_new_session=True
    )
    try:
        return ProcessExit(process.pid, await process.wait())
    finally:
        await stop_process(process, signal.SIGINT, _STOP_S)
