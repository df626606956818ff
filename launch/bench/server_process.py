"""Runs a server's command as a separate process, and measures it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.processes.background_tasks import stop_process
from protocol.errors import InfraError

_START_S = 120.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    url: str
    """Address without a trailing slash."""
    pid: int

    @property
    def cpu_s(self) -> float:
        return read_cpu_s(self.pid)

    @property
    def rss_mb(self) -> float:
        """Return the resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def read_cpu_s(pid: int) -> float:
    """Return the processor seconds of a process so far, without its children.  Raises OSError if it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


@asynccontextmanager
async def serve_command(
    module: str,
    *words: str,
    stop_s: float,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> AsyncGenerator[ServerProcess]:
    """Run ``python -m module words``, whose first line of output is its address, and stop it at the end of the block.

    Its standard error goes to ``log``, or where ours is.  Raises InfraError if it does not start.
    """
    with (Path(os.devnull) if log is None else log).open("ab") as errors:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251  the bench runs asyncio's own loop
            *(sys.executable, "-m", module, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if log is None else errors,
            env=environment,
            start_new_session=log is not None,
        )
    try:
        yield ServerProcess(await _read_address(process, module, log), process.pid)
    finally:
        await stop_process(process, stop_s)


async def _read_address(process: asyncio.subprocess.Process, module: str, log: Path | None) -> str:
    said = "its output is above" if log is None else f"{log} says why"
    assert process.stdout is not None  # noqa: S101  it is a pipe
    try:
        async with asyncio.timeout(_START_S):
            url = (await process.stdout.readline()).decode().strip()
    except TimeoutError as error:
        raise InfraError(f"{module} has not started within {_START_S:g} s: {said}") from error
    if not url:
        raise InfraError(f"{module} did not start: {said}")
    return url.rstrip("/")
