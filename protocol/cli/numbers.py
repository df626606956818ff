"""Numbers of a command line that mean something: ``add("--at-once", type=whole(1))``.

One that is out of bounds, or no number, is argparse's own error, which names the option.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

MAX_SAFE_INTEGER = 2**53 - 1
"""Every reader of JSON gets it exactly."""


def integer_between(least: int, most: int = MAX_SAFE_INTEGER) -> Callable[[str], int]:
    """A whole number from ``least`` to ``most``."""

    def read(word: str) -> int:
        try:
            value = int(word)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            bound = f"at least {least}" if value < least and most == MAX_SAFE_INTEGER else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"{word!r} is no whole number of {bound}")
        return value

    return read


def number_at_least(least: float) -> Callable[[str], float]:
    """A finite number that is at least ``least``."""

    def read(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            raise argparse.ArgumentTypeError(f"{word!r} is no number of at least {least:g}")
        return value

    return read
