"""Hooks between two steps: the training loop runs work that others request, and waits while the run is paused.

The loop runs pending hooks before each step and while it waits for a batch; nothing else of the loop runs meanwhile, so
no step sees half of a change.  When training ends, pending hooks are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, cast

from protocol.errors import UserError

T = TypeVar("T")


class StopReason(StrEnum):
    """Why training ended, or is to end."""

    STEPS = "steps"
    """The last step was taken."""
    BUDGET = "budget"
    """A limit of ``[stop]`` was reached."""
    DRAINED = "drained"
    """A person requested to finish open groups and no more."""
    STOPPED_BY_REQUEST = "stopped_by_request"
    """A person requested the end."""


@dataclass(frozen=True, slots=True)
class _PendingHook:
    work: Callable[[], Awaitable[object]]
    done: asyncio.Future[object]

    def refuse(self, error: Exception) -> None:
        if not self.done.done():  # else the caller was cancelled
            self.done.set_exception(error)

    async def run(self) -> None:
        """Run the work for its caller.  A UserError goes to the caller only; other errors are raised in the loop
        too."""
        if self.done.done():
            return
        try:
            result = await self.work()
        except UserError as error:
            self.refuse(error)
        except Exception as error:
            self.refuse(error)
            raise
        else:
            if not self.done.done():
                self.done.set_result(result)


@dataclass(slots=True)
class StepHooks:
    paused: bool = False
    requested_stop: StopReason | None = None
    """Ending that a person requested: ``DRAINED`` or ``STOPPED_BY_REQUEST``."""
    paused_s: float = 0.0
    """Seconds that the loop was paused in total."""
    _pending: deque[_PendingHook] = field(default_factory=deque[_PendingHook])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def require_open(self) -> None:
        """Raise UserError once training has ended."""
        if self._closed:
            raise _training_ended_error()

    async def run_between_steps(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` between two steps and return its result.  Raises its error, and UserError once training has
        ended."""
        self.require_open()
        hook = _PendingHook(work, asyncio.get_running_loop().create_future())
        self._pending.append(hook)
        self._changed.set()
        return cast("T", await hook.done)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._changed.set()

    def request_stop(self, ending: StopReason) -> None:
        """Let training end like this, also while it is paused."""
        self.requested_stop = ending
        self.resume()

    async def run_pending(self) -> None:
        """Run the pending hooks and wait while the run is paused.  Raises the hooks' errors other than UserError."""
        while True:
            while self._pending:
                await self._pending.popleft().run()
            if not self.paused:
                return
            self._changed.clear()
            paused_at = time.monotonic()
            await self._changed.wait()
            self.paused_s += time.monotonic() - paused_at

    def close(self) -> None:
        """Refuse pending and later hooks: training has ended."""
        self._closed = True
        while self._pending:
            self._pending.popleft().refuse(_training_ended_error())


def _training_ended_error() -> UserError:
    return UserError("training has ended and takes no further step, so this can no longer be done")
