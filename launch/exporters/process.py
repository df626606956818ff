"""Starts the exporters as a separate process beside a run.

If an exporter cannot be opened (missing key or package, port in use), the run does not start.  From then on the run
does not wait for the process; if it dies, this is reported once.  The process has its own session, as the monitor
has, and carries the run's token.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from launch.exporters.exporter_registry import EXPORTER_OPTION
from launch.processes.background_tasks import background_services, stop_process
from launch.processes.child_process import read_last_line
from launch.settings.metrics import MetricsSettings
from protocol.errors import UserError

_OPEN_S = 300.0
"""Seconds for a process to start on a busy machine and for a tracker to open."""
_STOP_S = 12.0


@asynccontextmanager
async def run_exporters_process(
    run_dir: Path, metrics: MetricsSettings, log: Path, report: Callable[[str], None]
) -> AsyncGenerator[str]:
    """Run the process and yield the names and address of its exporters; "" if the settings select none.

    ``report`` is called with a message if the process dies.  Raises UserError if an exporter cannot be opened.
    """
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
            raise UserError(_explain_end(log, process.returncode))
        async with background_services(_watch(process, log, report)):
            yield opened
    finally:
        await stop_process(process, _STOP_S)


def _command(run_dir: Path, metrics: MetricsSettings) -> list[str]:
    to = [word for name in metrics.exporters for word in (EXPORTER_OPTION, name)]
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


def _explain_end(log: Path, code: int | None) -> str:
    """Return why the process did not open, with the name of the setting in place of its option."""
    line = read_last_line(log)
    if code is not None and line.startswith("error: "):
        return line.removeprefix("error: ").replace(EXPORTER_OPTION, "metrics.exporters", 1)
    how = f"ended with exit code {code}" if code is not None else f"did not open within {_OPEN_S:g} s"
    return (
        f"metrics: the exporters' process {how}: see {log} for the reason; correct it, or remove metrics.exporters and "
        "metrics.prometheus"
    )


async def _watch(process: asyncio.subprocess.Process, log: Path, report: Callable[[str], None]) -> None:
    code = await process.wait()
    report(
        f"metrics are no longer exported (exit code {code}, see {log} for the reason): the run continues, and "
        "metrics.jsonl is complete"
    )
