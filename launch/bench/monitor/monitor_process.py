"""Runs the monitor as a separate process, and measures it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.monitor.web.access import TOKEN_VARIABLE
from launch.processes.background_tasks import stop_process
from protocol.errors import InfraError

_START_S, _STOP_S = 60.0, 10.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MonitorProcess:
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
async def serve_monitor(run_dir: Path) -> AsyncGenerator[MonitorProcess]:
    """Serve a run on loopback, without a token.  Raises InfraError if the monitor does not start."""
    process = await asyncio.create_subprocess_exec(  # noqa: TID251  the bench runs asyncio's own loop
        *(sys.executable, "-m", "launch.monitor", str(run_dir)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
    )
    try:
        assert process.stdout is not None  # noqa: S101  it was options for
        async with asyncio.timeout(_START_S):
            url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise InfraError(f"the monitor of {run_dir} did not start: its output is above")
        yield MonitorProcess(url.rstrip("/"), process.pid)
    except TimeoutError as error:
        raise InfraError(f"the monitor of {run_dir} has not started within {_START_S:g} s") from error
    finally:
        await stop_process(process, _STOP_S)
