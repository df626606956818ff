"""Tells by processor time, which a busy machine hardly changes, whether work on a text grows faster than the text."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES_LONGER = 8
MOST_TIMES_THE_WORK = 24
"""Three times what linear work takes for the longer text; quadratic work takes 64 times as much as for the shorter."""


def measure_growth(read: Callable[[int], object], size: int) -> float:
    """Return how many times as much processor time of this thread a text of ``TIMES_LONGER`` times ``size`` takes:
    the least of three measurements each, in which other work on the machine has hardly a part."""
    return min(_measure(read, size * TIMES_LONGER) for _ in range(3)) / min(_measure(read, size) for _ in range(3))


def _measure(read: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    read(size)
    return time.thread_time() - began
