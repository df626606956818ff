"""Reads a run directory into the state of the run.

A new store on the same directory gives the same state, once it has counted a long run's past
(:mod:`launch.monitor.run_state.past_totals`).  It is not thread-safe: one owner polls it and hands out views.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from launch.monitor.run_state.event_rules import apply_event, apply_metrics
from launch.monitor.run_state.model import MonitorState
from launch.monitor.run_state.past_totals import PastTotals, add_totals, find_recent_offsets
from launch.monitor.run_state.view import RunView, build_run_view
from protocol.run_directory.cursors import Cursor, format_cursor
from protocol.run_directory.json_fields import Event, get_mapping, get_number, read_json_object
from protocol.run_directory.layout import EVENT_FILES, NoSuchRunError
from protocol.run_directory.run_tail import RunTail

_METRICS = "metrics"


class RunStore:
    """Follows one run.  Raises NoSuchRunError if ``run_dir`` is not a folder; an empty or damaged one is accepted."""

    def __init__(self, run_dir: Path) -> None:
        if not run_dir.is_dir():
            raise NoSuchRunError(run_dir)
        self.run_dir = run_dir
        self.state = MonitorState()
        self.state.header.id = run_dir.resolve().name
        present = find_recent_offsets(run_dir)
        self._history = PastTotals(run_dir, present)
        self._reader = RunTail(run_dir, (*EVENT_FILES, f"{_METRICS}.jsonl"), present)
        self._config_read = False

    def poll(self, limit: int = 20_000) -> int:
        """Read at most ``limit`` new lines, or else a piece of the past, and return their number; 0 if there is
        nothing."""
        if not self._config_read:
            self._read_config()
        lines = self._reader.read(limit)
        for line in lines:
            if line.value is None:
                continue
            if line.source == _METRICS:
                apply_metrics(self.state, line.value)
            else:
                apply_event(self.state, line.value)
        return len(lines) or self._history.count_next_chunk()

    @property
    def cursor(self) -> Cursor:
        """Position up to which events are read."""
        return {source: at for source, at in self._reader.cursor.items() if source != _METRICS}

    @property
    def behind_bytes(self) -> int:
        """Number of bytes of the past that are not counted yet."""
        return self._history.remaining_bytes

    def catch_up(self) -> None:
        """Poll until nothing is left to read."""
        while self.poll():
            pass

    def view(self) -> RunView:
        past, present = self._history.state, self.state
        whole = replace(present, totals=add_totals(past.totals, present.totals), workers=past.workers | present.workers)
        return build_run_view(whole, self._reader.statistics(), format_cursor(self.cursor))

    def read_json_object(self, name: str) -> Event | None:
        """Return ``config.json`` or ``summary.json``; None while it is absent or damaged."""
        return read_json_object(self.run_dir / name)

    def _read_config(self) -> None:
        """Read settings that are shown before the run emits its first event."""
        if (config := self.read_json_object("config.json")) is None:
            return
        self._config_read = True
        inner = get_mapping(config, "config") or config
        header = self.state.header
        bound = get_number(get_mapping(inner, "staleness"), "max_staleness")
        header.max_staleness = bound if header.max_staleness is None else header.max_staleness
        header.steps = header.steps or int(get_number(get_mapping(inner, "run"), "steps") or 0)
        mode = get_mapping(inner, "run").get("mode")
        header.mode = header.mode or (mode if isinstance(mode, str) else "")
