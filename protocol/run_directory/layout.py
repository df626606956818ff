"""What a run's directory is called and has in it.  Light: readers import it without the configuration."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from protocol.cli.output import display_path
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

CONFIG_FILE, SUMMARY_FILE, REPORT_FILE = "config.json", "summary.json", "report.html"
LOCK_FILE = ".lock"
EVENTS_FOLDER = "events"
EVENT_FILES = ("events/*.jsonl",)
"""Glob of the event files in a run directory."""
SFT_TABLE = "sft"
"""Of a record: supervised training alone has it."""
DEFAULT_RUNS_FOLDER = Path("runs")
"""The folder of runs, unless ``run.dir`` names another."""
RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The name of a run's folder."""


class RunDirectoryError(UserError):
    """The run directory cannot be used as asked."""


class NoSuchRunError(RunDirectoryError):
    """There is no run at this path."""

    def __init__(self, path: Path) -> None:
        known = [record.parent.name for record in path.parent.glob(f"*/{CONFIG_FILE}")]
        there = f"python -m launch.runs list {shlex.quote(str(path.parent))} shows those that are there"
        none = f"{path.parent} holds no run; name one's directory, or begin one: python -m launch.cluster demo"
        near = did_you_mean(path.name, [name for name in known if name != path.name])
        super().__init__(f"no such run: {path} is not a run directory{near}: {there if known else none}")


def is_run_directory(path: Path) -> bool:
    """Whether a folder has anything of a run: its record, or what it told."""
    return (path / CONFIG_FILE).is_file() or (path / EVENTS_FOLDER).is_dir()


def resume_options(path: Path) -> str:
    """What ``python -m launch.cluster`` needs to go on with a run."""
    parent = path.parent.absolute()
    usual = parent == DEFAULT_RUNS_FOLDER.absolute()
    return (
        f"--resume {path.name}"
        if usual
        else f"--resume {path.name} --set {shlex.quote(f'run.dir={display_path(parent)}')}"
    )


def resume_command(path: Path, *, supervised: bool = False) -> str:
    """What a person types to go on with a run, which is supervised training or a cluster's."""
    return f"python -m launch.{'sft' if supervised else 'cluster'} {resume_options(path)}"
