"""Between two steps: where the training loop does what others ask of it, and waits while the run is paused.

Whoever asks waits for the loop to come by, which it does before each step and while it waits for a batch; what it does
there it does alone, so that no step sees half of a change.  When training ends, whoever still waits is told so.
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


class TrainingEnding(StrEnum):
    """Why training ended, or is to end."""

    STEPS = "steps"
    """Its last step was taken."""
    BUDGET = "budget"
    """A stop condition held."""
    DRAINED = "drained"
    """A person asked for what was under way, and no more."""
    STOPPED_BY_REQUEST = "stopped_by_request"
    """A person asked for its end."""


@dataclass(frozen=True, slots=True)
class _PendingHook:
    work: Callable[[], Awaitable[object]]
    done: asyncio.Future[object]

    def refuse(self, error: Exception) -> None:
        if not self.done.done():  # else who asked has gone
            self.done.set_exception(error)

    async def run(self) -> None:
        """Raises what keeps the loop from going on; what a person can mend concerns who asked, alone."""
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
    ending: TrainingEnding | None = None
    """What a person asks for: ``DRAINED`` or ``STOPPED_BY_REQUEST``."""
    paused_s: float = 0.0
    """For how long the loop has waited here."""
    _pending: deque[_PendingHook] = field(default_factory=deque[_PendingHook])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def require_open(self) -> None:
        """Raises UserError once training has ended."""
        if self._closed:
            raise _training_ended_error()

    async def run_between_steps(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have ``work`` done between two steps.  Raises what it raised, and UserError once training has ended."""
        self.require_open()
        order = _PendingHook(work, asyncio.get_running_loop().create_future())
        self._pending.append(order)
        self._changed.set()
        return cast("T", await order.done)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._changed.set()

    def request_end(self, how: TrainingEnding) -> None:
        """Training is to end so, also where it is paused."""
        self.ending = how
        self.resume()

    async def run_pending(self) -> None:
        """The loop stands between two steps: do what is asked, and wait while the run is paused.  Raises what keeps the
        loop from going on."""
        while True:
            while self._pending:
                await self._pending.popleft().run()
            if not self.paused:
                return
            self._changed.clear()
            begun = time.monotonic()
            await self._changed.wait()
            self.paused_s += time.monotonic() - begun

    def close(self) -> None:
        """Training has ended."""
        self._closed = True
        while self._pending:
            self._pending.popleft().refuse(_training_ended_error())


def _training_ended_error() -> UserError:
    return UserError("training has ended, and there is no step any more to do it before")
