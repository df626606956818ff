"""Runs the receiver: binds its port and receives until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from actors.runtime.stoppable_task import StoppableTask
from protocol.errors import InfraError
from protocol.stream import TrajectoryReceiver

_BIND_ATTEMPTS = 50
_BIND_RETRY_S = 0.2
"""Seconds between attempts: a restarted buffer reuses its port, which the system may need a moment to release."""


class ReceiverService:
    """A receiver that runs in its own task."""

    def __init__(self, make_receiver: Callable[[int], TrajectoryReceiver]) -> None:
        """``make_receiver`` creates a receiver that listens on a port."""
        self._make_receiver = make_receiver
        self._task: StoppableTask | None = None
        self.receiver: TrajectoryReceiver

    async def start(self, port: int) -> None:
        """Listen on ``port``, 0 for a free one.  Raises InfraError if it cannot be bound."""
        listening = asyncio.Event()
        task = StoppableTask(self._serve(port, listening), "buffer")
        async with AsyncExitStack() as undo:
            undo.push_async_callback(task.stop)
            await task.wait_until_started(listening)
            undo.pop_all()
        self._task = task

    async def stop(self) -> None:
        """Stop receiving.  Raises the error with which the receiver ended before."""
        if self._task is not None:
            await self._task.stop()

    async def require_running(self) -> None:
        """Raise the error that ended the receiver, or InfraError, if it does not run any more."""
        if self._task is not None and self._task.ended:
            await self._task.stop()  # raises the error that ended it
            raise InfraError("the buffer's receiver has ended")

    async def _serve(self, port: int, listening: asyncio.Event) -> None:
        """Bind the port, set ``listening``, and receive until cancelled."""
        attempts_left = _BIND_ATTEMPTS
        while not listening.is_set():
            attempts_left -= 1
            try:
                self.receiver = self._make_receiver(port)
                async with self.receiver:
                    listening.set()
                    await asyncio.Event().wait()
            except InfraError:
                if listening.is_set() or not attempts_left:
                    raise
                await asyncio.sleep(_BIND_RETRY_S)
