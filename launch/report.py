"""``longshore report RUN``: write a run's report again."""

from __future__ import annotations

import sys

from launch.monitor.reports.run_report import write_run_report
from launch.run_records.run_lock import directory_error
from protocol.cli.arguments import CommandArguments, JsonFlag
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, output_console
from protocol.run_directory.run_arguments import RunPath


class ReportArguments(CommandArguments):
    """Write a run's report.html again.

    Example: longshore report demo-1
    """

    run: RunPath
    as_json: JsonFlag = False


def run(given: ReportArguments, out: JsonOutput) -> None:
    """Write the report and print its path.  Raises RunDirectoryError."""
    try:
        report = write_run_report(given.run)
    except OSError as error:
        raise directory_error(given.run, error) from error
    out.set_result({"report": str(report)})
    if not out.enabled:
        output_console().print(str(report))


COMMAND = Command("report", ReportArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
