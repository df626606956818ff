"""Names of the files in a run's directory.  Light, so that readers can import it without the configuration."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from protocol.cli.output import display_path
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

CONFIG_FILE, SUMMARY_FILE, REPORT_FILE = "config.json", "summary.json", "report.html"
METRICS_FILE, LINEAGE_FILE = "metrics.jsonl", "lineage.jsonl"
LOCK_FILE = ".lock"
EVENTS_FOLDER = "events"
EVENT_FILES = ("events/*.jsonl",)
"""Glob of the event files in a run directory."""
SFT_TABLE = "sft"
"""Table of ``config.json`` that only supervised training has."""
DEFAULT_RUNS_FOLDER = Path("runs")
"""Folder of runs, unless ``run.dir`` names another."""
RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Valid names of a run's folder."""


class RunDirectoryError(UserError):
    """The run directory cannot be used as requested."""


class NoSuchRunError(RunDirectoryError):
    """There is no run at this path."""

    def __init__(self, path: Path) -> None:
        known = [record.parent.name for record in path.parent.glob(f"*/{CONFIG_FILE}")]
        there = f"`longshore runs list {shlex.quote(str(path.parent))}` shows the runs there"
        none = f"{path.parent} holds no run; name a run's directory, or start one: `longshore cluster demo`"
        near = did_you_mean(path.name, [name for name in known if name != path.name])
        super().__init__(f"no such run: {path} is not a run directory{near}: {there if known else none}")


def is_run_directory(path: Path) -> bool:
    """Return whether a folder is a run's: it has a configuration record or events."""
    return (path / CONFIG_FILE).is_file() or (path / EVENTS_FOLDER).is_dir()


def resume_command(path: Path, *, supervised: bool = False) -> str:
    """Return the command that resumes a run, of supervised training or of a cluster."""
    command, parent = f"longshore {'sft' if supervised else 'cluster'} --resume {path.name}", path.parent.absolute()
    usual = parent == DEFAULT_RUNS_FOLDER.absolute()
    return command if usual else f"{command} --set {shlex.quote(f'run.dir={display_path(parent)}')}"
