"""The lag of an event loop.  If this fails, a process that stands still is not named."""

from __future__ import annotations

import asyncio
import time

from protocol.processes.loop_lag import LoopLag, measure_loop_lag


def hold_the_loop() -> None:
    time.sleep(0.05)


async def test_a_loop_that_was_held_is_reported_with_at_least_that_time() -> None:
    reports = asyncio.Queue[LoopLag]()
    async with asyncio.TaskGroup() as group:
        measuring = group.create_task(measure_loop_lag(reports.put_nowait, interval_s=0.03, look_s=0.001))
        await reports.get()
        hold_the_loop()
        found = await reports.get()
        measuring.cancel()
    assert found.max_ms > 40
    assert 0 <= found.p99_ms <= found.max_ms
