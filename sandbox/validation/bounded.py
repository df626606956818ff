"""Carries out many trials, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Trial = TypeVar("Trial")
Result = TypeVar("Result")


async def carry_out(
    trials: Iterable[Trial],
    act: Callable[[Trial], Awaitable[Result]],
    at_once: int,
    on_result: Callable[[Result], None],
) -> list[Result]:
    """Return the result of ``act`` for each trial, in their order; ``on_result`` gets each when it is there.  Raises an
    exception group if ``act`` raises."""
    room = asyncio.Semaphore(at_once)

    async def one(trial: Trial) -> Result:
        async with room:
            result = await act(trial)
        on_result(result)
        return result

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(trial)) for trial in trials]
    return [each.result() for each in running]
