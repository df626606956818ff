"""Structured concurrency for the driver."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager

from protocol.errors import leaves


@asynccontextmanager
async def beside(*services: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Run ``services`` while the body runs; they are cancelled when it ends.  A service that fails cancels the body,
    and what it raised comes out, not a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(service) for service in services]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        first = next(leaves(errors))
        raise first from first.__cause__


async def end_process(process: asyncio.subprocess.Process, how: signal.Signals, patience_s: float) -> None:
    """Wait for the end of ``process``, which is asked for by ``how``, and after ``patience_s`` by SIGKILL."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(how)
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
