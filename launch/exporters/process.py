"""Starts the exporters as a separate process beside a run.

Where it cannot be opened (no key, no package, a port that is taken) the run does not begin.  After that the run neither
waits for it nor hears of it, but that it is told once where it has died.  Its session is its own, as the monitor's is,
and it carries the run's token.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from launch.exporters.settings import MetricsSettings
from launch.processes.background_tasks import background_services, stop_process
from protocol.errors import UserError

_OPEN_S = 300.0
"""Seconds for a process to start on a busy machine and for a tracker to open."""
_STOP_S = 12.0


@asynccontextmanager
async def run_exporters_process(
    run_dir: Path, metrics: MetricsSettings, log: Path, say: Callable[[str], None]
) -> AsyncGenerator[str]:
    """Yields what it says of itself, "" where nothing is asked for.  ``say`` hears of its death.  Raises UserError."""
    if not metrics.exports_metrics:
        yield ""
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251  # the driver runs asyncio's own loop
            *_command(run_dir, metrics),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        opened = await _first_line(process)
        if not opened:
            raise UserError(_why(log, process.returncode))
        async with background_services(_watch(process, log, say)):
            yield opened
    finally:
        await stop_process(process, signal.SIGTERM, _STOP_S)


def _command(run_dir: Path, metrics: MetricsSettings) -> list[str]:
    to = [word for name in metrics.exporters for word in ("--to", name)]
    port = ["--prometheus", str(metrics.port)] if metrics.prometheus else []
    command = [sys.executable, "-m", "launch.exporters", str(run_dir), "--follow", "--project", metrics.project]
    return [*command, *to, *port]


async def _first_line(process: asyncio.subprocess.Process) -> str:
    """Return the first line; empty if none comes in time."""
    if process.stdout is None:
        return ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_OPEN_S):
            line = (await process.stdout.readline()).decode().strip()
            if not line:
                await process.wait()
            return line
    return ""


def _why(log: Path, code: int | None) -> str:
    """Return the last line of its log, if it wrote one."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code is not None and lines and lines[-1].startswith("error: "):
        return lines[-1].removeprefix("error: ")
    how = f"ended with exit code {code}" if code is not None else f"did not open within {_OPEN_S:g} s"
    return (
        f"metrics: what hands them on {how}: {log} says why; mend that, or leave metrics.exporters and prometheus out"
    )


async def _watch(process: asyncio.subprocess.Process, log: Path, say: Callable[[str], None]) -> None:
    code = await process.wait()
    say(
        f"metrics are not handed on any more (exit code {code}, {log} says why): the run goes on, metrics.jsonl has all"
    )
