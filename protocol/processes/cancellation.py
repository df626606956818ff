"""Cancellation of calls that the other side completes anyway.

A daemon finishes a request even after its client has gone.  If the request creates something (a container, a network,
an image), a cancelled caller waits for its end, removes the result, and only then is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from protocol.errors import InfraError

T = TypeVar("T")


async def call_with_undo(
    call: Callable[[], Awaitable[T]], undo_result: Callable[[T], Awaitable[object]], within_s: float | None = None
) -> T:
    """Return the result of ``call``, which has its own deadline.

    When cancelled, wait for ``call``, at most ``within_s`` from then on, and pass its result to ``undo_result``; an
    InfraError of ``undo_result`` is ignored.  Raises what ``call`` raises.
    """
    results: list[T] = []
    failed: list[Exception] = []

    async def work() -> None:
        try:
            results.append(await call())
        except Exception as error:  # noqa: BLE001  re-raised below as it is, not in a group
            failed.append(error)

    async def undo() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await working
        for each in results:
            with contextlib.suppress(InfraError):
                await undo_result(each)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            undoing = group.create_task(undo())
            while not undoing.done():  # a second cancellation waits too
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(undoing)
            raise
    for error in failed:
        raise error
    return results[0]


async def call_to_end(call: Callable[[], Awaitable[object]]) -> None:
    """Wait for ``call`` even when this is cancelled meanwhile, and only then be cancelled.  Raises what ``call``
    raises."""

    async def keep(result: object) -> None:
        del result

    await call_with_undo(call, keep)


async def call_in_thread(call: Callable[[], T]) -> T:
    """Return the result of ``call``, which takes long, from a thread.  A cancellation waits for its end, so that nobody
    else meets what it changes half changed.  Raises what ``call`` raises."""

    async def drop(result: T) -> None:
        del result

    return await call_with_undo(lambda: asyncio.to_thread(call), drop)


@asynccontextmanager
async def temporary_resource(
    create: Callable[[], Awaitable[T]], remove: Callable[[T], Awaitable[object]]
) -> AsyncGenerator[T]:
    """Yield the result of ``create`` and remove it at the end in any case.  Raises what ``create`` and ``remove``
    raise."""
    result = await call_with_undo(create, remove)
    try:
        yield result
    finally:
        await call_to_end(lambda: remove(result))
