"""Measures how late an event loop runs what is due: the time for which something else held it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Never

_LOOK_S = 0.1
"""Seconds between two looks: their cost is about a ten-thousandth of a processor."""


class LoopLag(NamedTuple):
    """The lag of an event loop in one interval, in milliseconds."""

    max_ms: float
    p99_ms: float


async def measure_loop_lag(
    report: Callable[[LoopLag], None], interval_s: float = 30.0, look_s: float = _LOOK_S
) -> Never:
    """Report the lag of the running loop after each interval, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        ends_at, lags = clock() + interval_s, list[float]()
        while not lags or clock() < ends_at:
            due = clock() + look_s
            await asyncio.sleep(look_s)
            lags.append(max(0.0, clock() - due) * 1000)
        lags.sort()
        report(LoopLag(round(lags[-1], 1), round(lags[len(lags) * 99 // 100], 1)))
