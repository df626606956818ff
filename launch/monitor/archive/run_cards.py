"""Summarises each run of a folder with a few small reads, without taking any run's lock."""

from __future__ import annotations

from pathlib import Path

from launch.monitor.api_types import RunCard
from protocol.run_directory.file_tail import read_newest_lines
from protocol.run_directory.json_fields import (
    Event,
    get_integer,
    get_mapping,
    get_number,
    get_text,
    parse_json_object,
    read_json_object,
)
from protocol.run_directory.layout import CONFIG_FILE, METRICS_FILE
from protocol.run_directory.run_status import is_config_readable, read_run_status

MAX_RUNS = 500
_TAIL_BYTES = 1 << 18


def list_run_cards(folder: Path) -> list[RunCard]:
    """Return a card for each run that has a record, newest first."""
    try:
        found = [path for path in folder.iterdir() if (path / CONFIG_FILE).is_file()]
    except OSError:
        return []
    cards = sorted(map(read_run_card, found), key=lambda card: -card.changed_at)
    return cards[:MAX_RUNS]


def read_run_card(run_dir: Path) -> RunCard:
    """Return the card of one run, whatever state its directory is in."""
    record, last = read_json_object(run_dir / CONFIG_FILE), _last_step(run_dir / METRICS_FILE)
    section = get_mapping(get_mapping(record or {}, "config"), "run")
    return RunCard(
        id=run_dir.name,
        recipe=get_text(section, "name"),
        mode=get_text(section, "mode"),
        status=read_run_status(run_dir, look_only=True),
        step=get_integer(last, "step"),
        steps=get_integer(section, "steps"),
        reward_mean=get_number(last, "reward_mean"),
        pass_rate=get_number(last, "pass_rate"),
        changed_at=max(_changed(run_dir / METRICS_FILE), _changed(run_dir / CONFIG_FILE)),
        problem="" if is_config_readable(record) else f"{run_dir / CONFIG_FILE} cannot be read",
    )


def _last_step(path: Path) -> Event:
    """Return the last line of a step near the file's end; empty without one."""
    lines = map(parse_json_object, read_newest_lines(path, _TAIL_BYTES))
    steps = (line for line in lines if line is not None and "step" in line)
    return next(steps, Event())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
