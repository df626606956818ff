"""Formats numbers, states and times for people.  Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from rich.text import Text

from launch.monitor.api_types import TrajectoryState
from protocol.run_directory.run_status import RunStatus

MISSING = "–"
WIDE = 110
"""Number of columns from which a screen counts as wide."""
ACCENT, GOOD, WARN, BAD, QUIET = "cyan", "green", "yellow", "red", "dim"
_LEVELS = {"good": GOOD, "warn": WARN, "bad": BAD, "detail": QUIET}
_STATES = {
    "trained": GOOD,
    "dropped": BAD,
    "buffered": ACCENT,
    "open": ACCENT,
    "mixed": WARN,
    "serving": GOOD,
    "loading": WARN,
    "offloaded": WARN,
    "draining": WARN,
    "dead": BAD,
    "restarting": WARN,
}
_STATUS_STYLES = {
    RunStatus.RUNNING: GOOD,
    RunStatus.FINISHED: ACCENT,
    RunStatus.FAILED: BAD,
    RunStatus.STOPPED: WARN,
    RunStatus.DAMAGED: BAD,
}
_PHASES = {"warm_start": "warm start", "eval_before": "evaluation before", "eval_after": "evaluation after"}


def format_decimal(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def format_short(value: float | None) -> str:
    """Format a number in at most nine characters."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_percent(value: float | None) -> str:
    return MISSING if value is None or not math.isfinite(value) else f"{100 * value:.0f} %"


def format_duration(ms: float | None) -> str:
    if ms is None or not math.isfinite(ms):
        return MISSING
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.0f} min"


def format_clock(seconds: float) -> str:
    """Format a time of a recording as minutes, seconds and tenths."""
    return f"{int(seconds) // 60}:{int(10 * seconds) % 600 / 10:04.1f}"


def format_time_of_day(t: float | None) -> str:
    """Format the time of day, in UTC."""
    if t is None or not 0 <= t < 1e11:
        return MISSING
    return datetime.fromtimestamp(t, UTC).strftime("%H:%M:%S")


def format_age(seconds: float) -> str:
    if seconds < 90:
        return f"{max(0, seconds):.0f} s ago"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 172_800 else f"{seconds / 86_400:.0f} days ago"


def humanize_name(name: str) -> str:
    """Return an identifier as words."""
    return _PHASES.get(name, name.replace("_", " "))


def render_reward(value: float | None) -> Text:
    style = "" if value is None else GOOD if value >= 1 else BAD if value <= 0 else WARN
    return Text(format_decimal(value), style)


def render_state(name: str, reason: str = "") -> Text:
    """Format the state of a trajectory, a group or an engine."""
    shown = humanize_name(reason) if name == TrajectoryState.DROPPED and reason else humanize_name(name)
    return Text(shown, _STATES.get(name, ""))


def render_run_status(value: RunStatus, flow: str = "") -> Text:
    """Format the status of a run; ``flow`` is ``paused`` or ``draining`` if a person requested it."""
    return Text(f"● {flow or value.value}", f"bold {WARN if flow else _STATUS_STYLES[value]}")


def render_passed(value: bool | None) -> Text:
    return Text(MISSING, QUIET) if value is None else Text("✓", GOOD) if value else Text("✗", BAD)


def level_style(level: str) -> str:
    """Return the style of a log line's level."""
    return _LEVELS.get(level, "")


def one_line(text: str) -> str:
    return " ".join(text.split())


def truncate_text(text: str, width: int) -> str:
    """Cut text to ``width`` characters, with a mark at the end if something was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
