"""A task that outlives the call that started it.  Only this module may create one.

All other tasks belong to a ``TaskGroup`` whose ``async with`` ends them.  An actor that is started and stopped by two
different calls has no such block, so it hands one coroutine, usually a TaskGroup, to a :class:`StoppableTask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class StoppableTask:
    """Runs ``body`` from construction until it ends or :meth:`stop` is called, which must be awaited."""

    def __init__(self, body: Coroutine[Any, Any, None], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(body, name=name)

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def wait_until_started(self, started: asyncio.Event) -> None:
        """Wait until the body sets ``started``.  If it ends first, raises its exception, or RuntimeError."""
        self._task.add_done_callback(lambda _: started.set())
        await started.wait()
        if self._task.done():
            await self._task
            raise RuntimeError(f"{self._task.get_name()} ended before it had started")

    async def stop(self) -> None:
        """Cancel the body and wait until it has cleaned up.  Raises the body's exception."""
        self._task.cancel()
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._task.done():
                raise  # the caller was cancelled, not the body
