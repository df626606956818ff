"""``longshore stress``: start many sandboxes, verify every answer, inject faults.

Exit code 0: every check held (all sessions alive at once, every answer correct, no loss without a fault, every fault
accounted for, nothing left); 1: a check failed; 2: the run could not start; 130: interrupted.
"""

from __future__ import annotations

import asyncio
import os
import sys

from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from protocol.cli.output import JsonOutput, error_console
from sandbox.host import ensure_host
from sandbox.stress import progress_table
from sandbox.stress.options import StressArguments, StressOptions
from sandbox.stress.report import StressReport
from sandbox.stress.stress_run import run_stress

_COLUMNS = 120
"""Width of the table if standard error is not a terminal."""


def run(given: StressArguments, out: JsonOutput) -> int:
    """Run the load, show it on standard error, and return the exit code."""
    report = asyncio.run(_shown(given.options(os.environ)))
    out.set_result(report.json())
    return EXIT_INTERRUPTED if report.interrupted else EXIT_OK if report.ok else EXIT_FAILED


async def _shown(chosen: StressOptions) -> StressReport:
    """Run, and show the progress on standard error."""
    host = await asyncio.to_thread(ensure_host)
    console = error_console()
    if not console.is_terminal:
        console.width = _COLUMNS
    report = StressReport(chosen.sessions)
    async with progress_table.show_progress(report, console):
        await run_stress(chosen, host, report)
    console.print(progress_table.progress_table(report))
    for line in (*report.problems, *(f"check failed: {failure}" for failure in report.failed_checks())):
        console.print(line)
    return report


COMMAND = Command("stress", StressArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
