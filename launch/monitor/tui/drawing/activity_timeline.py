"""Draws the activity of the learner, engines and workers as coloured lines.  Pure."""

from __future__ import annotations

from rich.text import Text

from launch.monitor.api_types import ActivityTimeline, ActivityTrack
from launch.monitor.tui.drawing import styles
from protocol.cli import formatting

SHOWN = 10
_LABEL = 12
_COLORS = {
    **dict.fromkeys(("generating", "training"), "green"),
    **dict.fromkeys(("tool", "publishing"), "cyan"),
    **dict.fromkeys(("grading", "saving"), "blue"),
    **dict.fromkeys(("starting", "loading", "delivering"), "yellow"),
    **dict.fromkeys(("paused", "down"), "red"),
    **dict.fromkeys(("waiting", "offloaded"), "dim"),
}
_FULL, _HALF, _LOW = "█", "▌", "▏"


def render_activity(activity: ActivityTimeline) -> Text:
    """Return a line per process with a character per time slot, coloured by the dominant state."""
    shown = activity.tracks[:SHOWN]
    if not shown:
        return Text("No activity was recorded yet.", styles.QUIET)
    lines = [*map(_line, shown), _legend(activity)]
    if more := len(activity.tracks) - len(shown):
        lines.append(Text(f"and {more} more processes", styles.QUIET))
    return Text("\n").join(lines)


def _line(track: ActivityTrack) -> Text:
    line = Text(f"{formatting.truncate_text(track.name, _LABEL):<{_LABEL}} ", "bold")
    for at in range(max(map(len, track.states.values()), default=0)):
        state = max(track.states, key=lambda name: track.states[name][at])
        value = track.states[state][at]
        block = _FULL if value > 0.5 else _HALF if value > 0.1 else _LOW if value > 0 else " "
        line.append(block, _COLORS.get(state, ""))
    return line


def _legend(activity: ActivityTimeline) -> Text:
    """Return the colours with their states, and the span of time."""
    here = {state for track in activity.tracks[:SHOWN] for state in track.states}
    by_color = dict[str, list[str]]()
    for name in [name for name in _COLORS if name in here] + sorted(here - _COLORS.keys()):
        by_color.setdefault(_COLORS.get(name, ""), []).append(name)
    parts = [(f"{'/'.join(names)}  ", color) for color, names in by_color.items()]
    span = f"{formatting.format_time_of_day(activity.since)}–{formatting.format_time_of_day(activity.until)}"
    return Text.assemble(*parts, (span, styles.QUIET))
