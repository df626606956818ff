"""A command in a process of its own, which ends with the caller that waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import IO, NamedTuple

from launch.processes.background_tasks import stop_process
from protocol.run_directory.file_tail import read_newest_lines

_STOP_S = 180.0
_TAIL_BYTES = 8192


class ProcessExit(NamedTuple):
    pid: int
    exit_code: int


async def run_command(*words: str, log: IO[bytes] | None = None) -> ProcessExit:
    """Run it to its end, its standard output thrown away, its standard error in ``log`` or where ours is.  Where this
    is cancelled, it is told to stop, and waited for."""
    none = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(  # noqa: TID251  who runs programs runs asyncio's own loop
        *words, stdin=none, stdout=none, stderr=log, start_new_session=True
    )
    try:
        return ProcessExit(process.pid, await process.wait())
    finally:
        await stop_process(process, _STOP_S)


def read_last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = (raw.decode(errors="replace").strip() for raw in read_newest_lines(log, _TAIL_BYTES))
    return next(filter(None, lines), "")
