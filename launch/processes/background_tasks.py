"""Structured concurrency for the driver."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

from protocol.processes.task_groups import task_group


@asynccontextmanager
async def background_services(*services: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Run ``services`` while the body runs; they are cancelled when it ends.  A service that fails cancels the body,
    and what it raised comes out, not a group around it."""
    async with task_group() as group:
        tasks = [group.create_task(service) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


class BackgroundSlot:
    """Work that a loop leaves to go on beside it, one piece at a time.  What a piece raises, the loop gets where it
    next asks: nothing is cancelled for it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Begin ``work`` once the piece before it has ended.  Raises what that one raised."""
        await self.join()
        self._task = self._group.create_task(self._run(work))

    def raise_if_failed(self) -> None:
        """Raise what a piece of work that has ended raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def join(self) -> None:
        """Wait for the work under way.  Raises what it raised."""
        await self.wait_done()
        self.raise_if_failed()

    async def wait_done(self) -> None:
        """Wait for the work under way, however it ends."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def discard_result(self) -> None:
        """Wait for the work under way, whose end is of no concern any more."""
        await self.wait_done()
        self._error = None

    async def _run(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # the loop gets it
            self._error = error


async def stop_process(process: asyncio.subprocess.Process, stop_signal: signal.Signals, patience_s: float) -> None:
    """Wait for the end of ``process``, which is asked for by ``how``, and after ``patience_s`` by SIGKILL."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(stop_signal)
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
