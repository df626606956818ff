"""Formats figures and names for people: one way for every table, page and terminal."""

from __future__ import annotations

import math
from datetime import UTC, datetime

MISSING = "–"


def format_decimal(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def format_count(value: float | None) -> str:
    return format_decimal(value, 0)


def format_short(value: float | None) -> str:
    """Format a number in at most nine characters."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_percent(share: float | None) -> str:
    return MISSING if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def format_difference(shares: float) -> str:
    """Format a difference of two shares, in percentage points with its sign."""
    return f"{'−' if shares < 0 else '+'}{abs(100 * shares):.1f}"


def format_score(share: float | None, stderr: float | None = None) -> str:
    """Format a share with its standard error, both in percent."""
    return format_percent(share) + format_stderr(stderr)


def format_stderr(stderr: float | None) -> str:
    """Return what follows a share that has a standard error; nothing for one that has none."""
    return "" if stderr is None else f" ± {100 * stderr:.1f}"


def format_duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_milliseconds(ms: float | None) -> str:
    return format_duration(None if ms is None else ms / 1000)


def format_age(seconds: float) -> str:
    """Format the time since something happened, in its largest unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def format_clock(seconds: float) -> str:
    """Format a time of a recording as minutes, seconds and tenths."""
    return f"{int(seconds) // 60}:{int(10 * seconds) % 600 / 10:04.1f}"


def format_time_of_day(t: float | None) -> str:
    """Format the time of day, in UTC."""
    return datetime.fromtimestamp(t, UTC).strftime("%H:%M:%S") if t is not None and 0 <= t < 1e11 else MISSING


def format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit in {"B", "KiB"} else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def humanize_name(name: str) -> str:
    """Return an identifier as words."""
    return name.replace("_", " ")


def one_line(text: str) -> str:
    return " ".join(text.split())


def truncate_text(text: str, width: int) -> str:
    """Cut text to ``width`` characters, with a mark at the end if something was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
