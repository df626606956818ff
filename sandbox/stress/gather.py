"""Many at once, but not more than so many; and the errors of many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def each(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """``do`` for each item, in order of their beginning.  The first error cancels the rest."""
    waiting = iter(tuple(items))

    async def work() -> None:
        for item in waiting:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


def leaves(error: Exception) -> Iterator[Exception]:
    """The errors in a group of groups; a single error is its own leaf."""
    if isinstance(error, ExceptionGroup):
        for member in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  the group's type argument is lost in isinstance
            yield from leaves(member)  # pyright: ignore[reportUnknownArgumentType]  as above
    else:
        yield error
