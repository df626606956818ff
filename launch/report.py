"""``python -m launch.report runs/<id>``: make the run's report again from what it left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from launch.monitor.reports.run_report import write_run_report
from launch.run_records.run_directory import directory_error
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report and say where.  Raises RunDirectoryError."""
    parser = CommandLineParser(prog="python -m launch.report", description="Write report.html for a run.")
    parser.add_argument("run_dir", type=Path, help="runs/<id>")
    asked = parser.parse_args(argv)
    try:
        report = write_run_report(asked.run_dir)
    except OSError as error:
        raise directory_error(asked.run_dir, error) from error
    sys.stdout.write(f"{report}\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))
