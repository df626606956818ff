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
STARTS_FOLDER = "starts"
"""Folder of the logs and records of each start of a run; see :func:`start_folder`."""
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
        path = path if path.name else path.absolute()
        folder = DEFAULT_RUNS_FOLDER if path == Path(path.name) else path.parent
        known = run_ids(folder)
        usual = folder.absolute() == DEFAULT_RUNS_FOLDER.absolute()
        command = "longshore runs list" if usual else f"longshore runs list {shlex.quote(str(folder))}"
        there = f"`{command}` lists them" if known else "it has no runs, and `longshore cluster demo` starts one"
        near = did_you_mean(path.name, [name for name in known if name != path.name])
        super().__init__(f"no run '{path.name}' in {folder}: {there}{near}")


def run_ids(folder: Path = DEFAULT_RUNS_FOLDER) -> list[str]:
    """Return the ids of the runs in a folder."""
    return [record.parent.name for record in folder.glob(f"*/{CONFIG_FILE}")]


def find_folder(path: Path, parent: Path = DEFAULT_RUNS_FOLDER) -> Path:
    """Return ``path`` if it exists, otherwise the run with that id in ``parent``, or what ``path`` names in that run:
    a trajectory, an evaluation.  Where there is no such run this is ``path`` too."""
    if path.is_absolute() or path.exists() or not path.parts:
        return path
    return parent / path if (parent / path.parts[0]).is_dir() else path


def start_folder(run_dir: Path, number: int) -> Path:
    """Return the folder of one start of a run, counted from 1."""
    return run_dir / STARTS_FOLDER / str(number)


def is_run_directory(path: Path) -> bool:
    """Return whether a folder is a run's: it has a configuration record or events."""
    return (path / CONFIG_FILE).is_file() or (path / EVENTS_FOLDER).is_dir()


def resume_command(path: Path, *, supervised: bool = False) -> str:
    """Return the command that resumes a run, of supervised training or of a cluster."""
    command, parent = f"longshore {'sft' if supervised else 'cluster'} --resume {path.name}", path.parent.absolute()
    usual = parent == DEFAULT_RUNS_FOLDER.absolute()
    return command if usual else f"{command} --set {shlex.quote(f'run.dir={display_path(parent)}')}"
