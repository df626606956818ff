"""The runs of a folder, each by what a few small reads say of it.  A run's lock is looked at and never taken."""

from __future__ import annotations

import os
from pathlib import Path

from launch.monitor.api_types import RunCard, RunStatus
from protocol.run_directory.jsonl_tail import Event, get_integer, get_mapping, get_number, get_text, parse_json_object
from protocol.run_directory.layout import CONFIG_FILE, LOCK_FILE, SUMMARY_FILE

MAX_RUNS = 500
_TAIL_BYTES = 1 << 18


def list_run_cards(folder: Path) -> list[RunCard]:
    """Those that have a record, the newest first."""
    try:
        found = [path for path in folder.iterdir() if (path / CONFIG_FILE).is_file()]
    except OSError:
        return []
    cards = sorted(map(read_run_card, found), key=lambda card: -card.changed_at)
    return cards[:MAX_RUNS]


def read_run_card(run_dir: Path) -> RunCard:
    """Of one run, whatever state its directory is in."""
    record, last = _object(run_dir / CONFIG_FILE), _last_step(run_dir / "metrics.jsonl")
    config = get_mapping(record or {}, "config")
    readable = bool(config) and all(isinstance(section, dict) for section in config.values())
    asked = get_mapping(config, "run")
    return RunCard(
        id=run_dir.name,
        recipe=get_text(asked, "name"),
        mode=get_text(asked, "mode"),
        status=read_run_status(run_dir),
        step=get_integer(last, "step"),
        steps=get_integer(asked, "steps"),
        reward_mean=get_number(last, "reward_mean"),
        pass_rate=get_number(last, "pass_rate"),
        changed_at=max(_changed(run_dir / "metrics.jsonl"), _changed(run_dir / CONFIG_FILE)),
        problem="" if readable else f"{run_dir / CONFIG_FILE} cannot be read",
    )


def read_run_status(run_dir: Path) -> RunStatus:
    if is_running(run_dir):
        return RunStatus.RUNNING
    summary = _object(run_dir / SUMMARY_FILE)
    return RunStatus.STOPPED if summary is None or summary.get("finished") is False else RunStatus.FINISHED


def is_running(run_dir: Path) -> bool:
    """Whether a driver has the run: by the kernel's list, as trying its lock might keep a driver from taking it."""
    try:
        stat = (run_dir / LOCK_FILE).stat()
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    held = (line.split() for line in locks.splitlines())
    return any(len(each) > 5 and each[1] == "FLOCK" and each[5].rpartition(":")[2] == str(stat.st_ino) for each in held)


def _object(path: Path) -> Event | None:
    try:
        return parse_json_object(path.read_bytes())
    except OSError:
        return None


def _last_step(path: Path) -> Event:
    """The last line of a step in the file's end."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    steps = (line for raw in reversed(lines) if (line := parse_json_object(raw)) is not None and "step" in line)
    return next(steps, Event())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
