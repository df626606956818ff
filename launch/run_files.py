"""What a run's directory is called and has in it.  Light: readers import it without the configuration."""

from __future__ import annotations

import re
from pathlib import Path

from protocol.cli.words import did_you_mean
from protocol.errors import UserError

CONFIG_FILE, SUMMARY_FILE, REPORT_FILE = "config.json", "summary.json", "report.html"
LOCK_FILE = ".lock"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The name of a run's folder."""


class RunDirectoryError(UserError):
    """The run directory cannot be used as asked."""


class NoSuchRunError(RunDirectoryError):
    """There is no run at this path."""

    def __init__(self, path: Path) -> None:
        known = [record.parent.name for record in path.parent.glob(f"*/{CONFIG_FILE}")]
        super().__init__(
            f"no such run: {path} is not a run directory{did_you_mean(path.name, known)}"
            f"{'' if known else f' ({path.parent} holds no run)'}"
        )
