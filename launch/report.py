"""``python -m launch.report runs/<id>``: make the run's report again from what it left."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.monitor.report import write_report
from protocol.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the report is written; 2 when there is no such run."""
    parser = argparse.ArgumentParser(prog="longshore report", description="Write report.html for a run.")
    parser.add_argument("run_dir", type=Path, help="runs/<id>")
    asked = parser.parse_args(argv)
    try:
        path = write_report(asked.run_dir)
    except UserError as error:
        sys.stderr.write(f"longshore report: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
