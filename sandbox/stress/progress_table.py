"""Shows a run's progress: a table that is updated, or plain lines without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sandbox.stress.report import StressReport, percentile

_REFRESH_S = 0.5
_LINE_S = 5.0


def progress_table(report: StressReport) -> Table:
    """Return the table with each figure and its floor."""
    made = Table(title=f"stress: {report.phase}", title_justify="left", box=None, pad_edge=False)
    for heading in ("", "measured", "floor", "ratio"):
        made.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    pipe, docker_exec = percentile(report.pipe_ms, 50), percentile(report.docker_exec_ms, 50)
    memory, steal = report.bytes_per_session, report.steal
    rows = [
        ("sessions alive at once", f"{report.live_peak}", f"of {report.sessions}", ""),
        ("starts a second, shell answered | create + start", _number(report.starts.per_s),
         _number(report.floor_starts.per_s), _number(report.start_vs_floor)),
        ("acquire from the warm pool, ms p50 / p95", _pair(report.acquire_ms), "", ""),
        ("command, one at a time, ms p50 / p95 | local pipe", _pair(report.command_ms), _number(pipe),
         _number(report.command_vs_pipe)),
        ("the same | docker exec, ms p50", _number(percentile(report.command_ms, 50)), _number(docker_exec),
         _number(report.command_vs_exec)),
        ("command, all sessions at once, ms p50 / p95", _pair(report.load_ms), "", ""),
        ("commands a second, all sessions at once", _number(report.load.per_s), "", ""),
        ("client memory a session, KiB", _number(None if memory is None else memory / 1024), "", ""),
        ("processor time stolen by the hypervisor, %", _number(None if steal is None else 100 * steal), "", ""),
        ("answers verified", f"{report.commands}", f"{report.wrong_answers} wrong", ""),
        ("containers left", f"{report.leaked_containers}", "", ""),
    ]  # fmt: skip
    rows += [
        (f"fault {name}", f"{tally.injected} injected", f"{tally.resumed} resumed, {tally.lost_typed} lost",
         f"{tally.skipped} skipped" if tally.skipped else "")
        for name, tally in report.faults.items()
    ]  # fmt: skip
    for row in rows:
        made.add_row(*row)
    return made


@asynccontextmanager
async def show_progress(report: StressReport, console: Console) -> AsyncGenerator[None]:
    """Show ``report`` until the block ends; the last state stays."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        display = group.create_task(_live(report, console) if console.is_terminal else _lines(report, console))
        try:
            yield
        except Exception as error:  # noqa: BLE001  raised below, as it is and not in a group
            failure = error
        finally:
            display.cancel()
    if failure is not None:
        raise failure


async def _live(report: StressReport, console: Console) -> None:
    with Live(progress_table(report), console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(progress_table(report), refresh=True)
            await asyncio.sleep(_REFRESH_S)


async def _lines(report: StressReport, console: Console) -> None:
    loop, shown, at = asyncio.get_running_loop(), "", 0.0
    while True:
        line = f"{report.phase}: {report.starts.count} started, {report.commands} answers, {report.wrong_answers} wrong"
        if report.phase and line != shown and (report.phase != shown.partition(":")[0] or loop.time() - at > _LINE_S):
            console.print(line)
            shown, at = line, loop.time()
        await asyncio.sleep(_REFRESH_S)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _pair(values: list[float]) -> str:
    return f"{_number(percentile(values, 50))} / {_number(percentile(values, 95))}"
