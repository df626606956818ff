"""Lists the runs of a folder with status, progress and size.

A run whose files are damaged has a line too, which says so.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from launch.run_records.metrics_log import read_metrics
from launch.run_records.run_lookup import list_runs
from launch.run_records.run_summary import EvaluationScores, read_run_summary
from launch.run_records.stored_config import load_stored_tables
from protocol.cli.formatting import format_age, format_bytes, format_percent
from protocol.errors import UserError
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, get_text
from protocol.run_directory.layout import CONFIG_FILE, RunDirectoryError, start_folder
from protocol.run_directory.plain_files import require_plain_files
from protocol.run_directory.run_status import RunStatus, read_run_status


@dataclass(frozen=True, slots=True)
class RunListRow:
    run: str
    recipe: str
    status: RunStatus
    step: int
    steps: int
    pass_rate: float | None
    """The pass rate of the newest step that has one."""
    before: float | None
    after: float | None
    """pass@1 of the evaluations before and after training."""
    bytes: int
    age_s: float
    """Seconds since the run began."""


def list_run_rows(folder: Path, now: float | None = None) -> list[RunListRow]:
    """Return a row for each run, newest last."""
    return [read_run_row(path, time.time() if now is None else now) for path in list_runs(folder)]


def read_run_row(run_dir: Path, now: float) -> RunListRow:
    try:
        require_plain_files(run_dir)
    except (RunDirectoryError, OSError):
        return RunListRow(
            run=run_dir.name,
            recipe="",
            status=RunStatus.DAMAGED,
            step=0,
            steps=0,
            pass_rate=None,
            before=None,
            after=None,
            bytes=folder_bytes(run_dir),
            age_s=max(0.0, round(now - _begun(run_dir), 1)),
        )
    try:
        config = cast("Event", load_stored_tables(run_dir))
    except UserError:
        config = {}
    try:
        summary = read_run_summary(run_dir)
    except UserError:
        summary = None
    scores = summary.evaluation if summary else EvaluationScores()
    steps = read_metrics(run_dir)
    rates = [step["pass_rate"] for step in steps if "pass_rate" in step]
    section = get_mapping(config, "run")
    return RunListRow(
        run=run_dir.name,
        recipe=get_text(section, "name"),
        status=read_run_status(run_dir),
        step=int(steps[-1]["step"]) if steps else 0,
        steps=get_integer(section, "steps"),
        pass_rate=rates[-1] if rates else None,
        before=scores.before.pass_at_1 if scores.before else None,
        after=scores.after.pass_at_1 if scores.after else None,
        bytes=folder_bytes(run_dir),
        age_s=max(0.0, round(now - _begun(run_dir), 1)),
    )


def _begun(run_dir: Path) -> float:
    """Return when the run began."""
    first = start_folder(run_dir, 1) / CONFIG_FILE
    return (first if first.exists() else run_dir / CONFIG_FILE).stat().st_mtime


def folder_bytes(folder: Path) -> int:
    """Return the bytes that a folder's files take on disk; what vanishes meanwhile takes none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


RUN_COLUMNS = ("run", "status", "steps", "pass", "before", "after", "size", "age")


def format_run_row(line: RunListRow) -> tuple[str, ...]:
    """Return the row as text."""
    of = f"{line.step}/{line.steps}" if line.steps else str(line.step)
    rates = [format_percent(value) for value in (line.pass_rate, line.before, line.after)]
    return (line.run, line.status.value, of, *rates, format_bytes(line.bytes), format_age(line.age_s))
