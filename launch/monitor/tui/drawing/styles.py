"""The colours of states, and the texts that have them.  Pure."""

from __future__ import annotations

from rich.text import Text

from launch.monitor.api_types import TrajectoryState
from protocol.cli.formatting import MISSING, format_decimal, humanize_name
from protocol.run_directory.run_status import RunStatus

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
