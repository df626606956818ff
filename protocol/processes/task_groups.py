"""Structured concurrency whose errors are the errors themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from protocol.errors import iterate_leaf_errors


@asynccontextmanager
async def task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """A task group out of which the first error comes as it was raised, not a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = next(iterate_leaf_errors(errors))
        raise first from first.__cause__
