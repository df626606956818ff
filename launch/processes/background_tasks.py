"""Structured concurrency for the driver."""

from __future__ import annotations

import asyncio
import contextlib
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
    """Runs one piece of work at a time in parallel with a loop.  Its error is raised when the loop next joins it, and
    cancels nothing."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start ``work`` once the work before it has ended.  Raises what that raised."""
        await self.join()
        self._task = self._group.create_task(self._run(work))

    def raise_if_failed(self) -> None:
        """Raise the error of work that has ended."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def join(self) -> None:
        """Wait for the running work.  Raises its error."""
        await self.wait_done()
        self.raise_if_failed()

    async def wait_done(self) -> None:
        """Wait for the running work, however it ends."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def discard_result(self) -> None:
        """Wait for the running work and forget its error."""
        await self.wait_done()
        self._error = None

    async def _run(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  raised where the loop joins the work
            self._error = error


async def stop_process(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """Send SIGTERM, which no shell makes its jobs ignore, then SIGKILL after ``timeout_s``, and wait for the end."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
