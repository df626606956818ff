"""A call that the other side finishes even when its caller has gone, and what is to be done about that.

A daemon goes on with a request that its client has given up.  Where that makes something (a container, a network, an
image), the one who asked waits for the end all the same, takes back what was made, and only then is cancelled.
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
    """The result of ``call``, which has a deadline of its own.  When this is cancelled, ``call`` is waited for, at most
    ``within_s`` from then on, and what it gave is handed to ``take_back``, whose InfraError is nobody's any more.
    Raises what ``call`` raises.
    """
    results: list[T] = []
    failed: list[Exception] = []

    async def work() -> None:
        try:
            results.append(await call())
        except Exception as error:  # noqa: BLE001  it leaves below as it is, not in a group
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
            while not undoing.done():  # whoever cancels again waits all the same
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(undoing)
            raise
    for error in failed:
        raise error
    return results[0]


@asynccontextmanager
async def temporary_resource(
    create: Callable[[], Awaitable[T]], remove: Callable[[T], Awaitable[object]]
) -> AsyncGenerator[T]:
    """What ``call`` gave, taken back at the end, however that comes.  Raises what ``call`` and ``take_back`` raise."""
    result = await call_with_undo(create, remove)
    try:
        yield result
    finally:
        await asyncio.shield(remove(result))
