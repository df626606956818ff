"""Every run of a folder in a line: how it stands, how far it came, what it takes.

A run whose files are damaged has a line too, which says so.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from launch.metrics import read_metrics
from launch.monitor.store import read_object
from launch.monitor.tail import Event, integer, mapping, number, text
from launch.rundir import CONFIG_FILE, SUMMARY_FILE, is_running, runs, stored_values
from protocol.errors import UserError


class State(StrEnum):
    RUNNING = "running"
    """A driver has it."""
    DONE = "done"
    """It came to its end."""
    FAILED = "failed"
    """It came to its end, and a check of its own did not hold."""
    STOPPED = "stopped"
    """Nobody has it, and it can be gone on with."""
    DAMAGED = "damaged"
    """Its record cannot be read."""


@dataclass(frozen=True, slots=True)
class RunLine:
    run: str
    recipe: str
    state: State
    step: int
    steps: int
    pass_rate: float | None
    """Of the newest step that has one."""
    before: float | None
    after: float | None
    """pass@1 of the evaluations."""
    bytes: int
    age_s: float
    """Since it began."""


def list_runs(folder: Path, now: float | None = None) -> list[RunLine]:
    """The newest last."""
    return [run_line(path, time.time() if now is None else now) for path in runs(folder)]


def run_line(run_dir: Path, now: float) -> RunLine:
    try:
        config = cast("Event", stored_values(run_dir))
    except UserError:
        config = {}
    summary = read_object(run_dir / SUMMARY_FILE)
    steps = read_metrics(run_dir)
    rates = [step["pass_rate"] for step in steps if "pass_rate" in step]
    scores = mapping(summary or {}, "eval")
    section = mapping(config, "run")
    return RunLine(
        run=run_dir.name,
        recipe=text(section, "name"),
        state=_state(run_dir, config, summary),
        step=int(steps[-1]["step"]) if steps else 0,
        steps=integer(section, "steps"),
        pass_rate=rates[-1] if rates else None,
        before=number(mapping(scores, "before"), "pass_at_1"),
        after=number(mapping(scores, "after"), "pass_at_1"),
        bytes=folder_bytes(run_dir),
        age_s=max(0.0, round(now - _begun(run_dir), 1)),
    )


def _state(run_dir: Path, config: Event, summary: Event | None) -> State:
    if is_running(run_dir):
        return State.RUNNING
    if not config:
        return State.DAMAGED
    if summary is None:
        return State.STOPPED
    return State.DONE if summary.get("ok") is not False else State.FAILED


def _begun(run_dir: Path) -> float:
    """The first attempt's record is written once, and the run's anew by each."""
    first = run_dir / "attempts" / "1" / CONFIG_FILE
    return (first if first.exists() else run_dir / CONFIG_FILE).stat().st_mtime


def folder_bytes(folder: Path) -> int:
    """That its files take on the disk; what vanishes meanwhile takes none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


HEAD = ("run", "state", "steps", "pass", "before", "after", "size", "age")


def cells(line: RunLine) -> tuple[str, ...]:
    """For a person."""
    of = f"{line.step}/{line.steps}" if line.steps else str(line.step)
    rates = [_percent(value) for value in (line.pass_rate, line.before, line.after)]
    return (line.run, line.state.value, of, *rates, shown_bytes(line.bytes), shown_age(line.age_s))


def shown_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def shown_age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
