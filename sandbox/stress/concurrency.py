"""Runs many operations with bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Run ``do`` for each item, ``at_once`` at a time, in order. The first error cancels the rest."""
    waiting = iter(tuple(items))

    async def work() -> None:
        for item in waiting:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
