"""What a daemon goes on making when its client has gone: seen to its end, and undone.

A cancelled caller waits here until the daemon has answered, at most as long as the call's own deadline, so that
nothing is made that nobody removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


async def seen_through(work: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]]) -> T:
    """``work``'s result.  When the caller is cancelled meanwhile, ``work`` ends all the same and ``undo`` follows."""
    results: list[T] = []
    ended = asyncio.Event()

    async def working() -> T:
        try:
            results.append(await work())
            return results[0]
        finally:
            ended.set()

    async def undoing() -> None:
        await ended.wait()
        for result in results:
            await undo(result)

    try:
        return await asyncio.shield(working())
    except asyncio.CancelledError:
        await asyncio.shield(undoing())
        raise


@asynccontextmanager
async def made(work: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]]) -> AsyncGenerator[T]:
    """``work``'s result, undone at the end, however that comes."""
    result = await seen_through(work, undo)
    try:
        yield result
    finally:
        await asyncio.shield(undo(result))
