"""Task groups that raise plain errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from protocol.errors import iterate_leaf_errors


@asynccontextmanager
async def task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """Open a task group that raises its first error as it was raised, not in an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = next(iterate_leaf_errors(errors))
        raise first from first.__cause__
