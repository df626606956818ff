"""Draws curves as characters.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

TICKS = "▁▂▃▄▅▆▇█"
_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of the dots of a braille character by column, from the top."""
_PER_CELL = 4


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return the last ``width`` known values as one line of ``TICKS``; nothing for fewer than two."""
    known = [value for value in values if value is not None][-width:]
    low, high = _bounds(known)
    return "".join(TICKS[_level(value, low, high, len(TICKS))] for value in known) if len(known) > 1 else ""


def braille_curve(values: Sequence[float | None], width: int, height: int) -> list[str]:
    """Return a curve as ``height`` lines of ``width`` braille characters."""
    columns, rows = 2 * width, _PER_CELL * height
    known = _resampled(values, columns)
    low, high = _bounds(known)
    cells = [[_BLANK] * width for _ in range(height)]
    before: int | None = None
    for column, value in enumerate(known):
        if value is None:
            before = None
            continue
        at = rows - 1 - _level(value, low, high, rows)
        start, end = sorted((at, at if before is None else before))
        for dot in range(start, end + 1):
            cells[dot // _PER_CELL][column // 2] |= _DOTS[column % 2][dot % _PER_CELL]
        before = at
    return ["".join(map(chr, line)) for line in cells]


def _resampled(values: Sequence[float | None], columns: int) -> list[float | None]:
    """Resample to the number of columns, with linear interpolation."""
    last = len(values) - 1
    return [_between(values, column * last / max(1, columns - 1)) for column in range(columns)] if values else []


def _between(values: Sequence[float | None], at: float) -> float | None:
    before, share = values[int(at)], at % 1
    after = values[min(len(values) - 1, int(at) + 1)]
    if before is None or after is None or not share:
        return before if share < 0.5 else after
    return before * (1 - share) + after * share


def _bounds(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else (0.0, 0.0)


def _level(value: float, low: float, high: float, levels: int) -> int:
    """Scale to 0 … ``levels`` − 1; the middle if all values are equal."""
    if not high > low:
        return levels // 2
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    share = (value - low) / (high - low)
    return min(levels - 1, max(0, int(share * levels)))
