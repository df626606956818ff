"""The receiver's life: bound to a port, received from until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.runtime.stoppable_task import StoppableTask
from protocol.errors import InfraError
from protocol.stream import TrajectoryReceiver

_BIND_ATTEMPTS = 50
_BIND_RETRY_S = 0.2
"""A restarted buffer takes its old port again, which the system may need a moment to release."""


class ReceiverService:
    """A receiver that runs in a task of its own."""

    def __init__(self, make_receiver: Callable[[int], TrajectoryReceiver]) -> None:
        """``make_receiver`` makes a receiver that listens on a port."""
        self._make_receiver = make_receiver
        self._task: StoppableTask | None = None
        self.receiver: TrajectoryReceiver

    async def start(self, port: int) -> None:
        """Listen on ``port``, 0 for a free one.  Raises InfraError if it cannot be bound."""
        listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = StoppableTask(self._serve(port, listening), "buffer")
        try:
            await listening
        except BaseException:
            await task.stop()
            raise
        self._task = task

    async def stop(self) -> None:
        """Stop receiving.  Raises what ended the receiver before."""
        if self._task is not None:
            await self._task.stop()

    async def require_running(self) -> None:
        """Raise what ended the receiver, or InfraError, if it does not run any more."""
        if self._task is not None and self._task.ended:
            await self._task.stop()  # raises what ended it
            raise InfraError("the buffer's receiver has ended")

    async def _serve(self, port: int, listening: asyncio.Future[None]) -> None:
        """Receive until cancelled; ``listening`` is set when that began, or to why it could not."""
        for attempts_left in reversed(range(_BIND_ATTEMPTS)):
            try:
                self.receiver = self._make_receiver(port)
                async with self.receiver:
                    listening.set_result(None)
                    await asyncio.Event().wait()
            except Exception as error:
                if listening.done():
                    raise
                if not attempts_left or not isinstance(error, InfraError):
                    listening.set_exception(error)
                    return
            await asyncio.sleep(_BIND_RETRY_S)
