"""Polls the scheduler for as many requests as the worker has free slots, and runs each in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from protocol.trajectory import RolloutRequest, is_training_trajectory

REQUEST_POLL_S = 10.0
"""Longest wait for requests in one call; a request's deadline includes it."""
_SCHEDULER_RETRY_S = 1.0


@dataclass(slots=True)
class RequestPoller:
    """Keeps a worker's slots filled until it is stopped."""

    scheduler: Remote[RolloutScheduler]
    worker: str
    slots: int
    online_evaluation: bool
    """Whether the worker fetches only requests of online evaluations."""
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    """The task of each running attempt by attempt id."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _slot_free: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: asyncio.Timeout | None = None
    """Timeout of the wait for requests, through which :meth:`stop` ends it."""

    def stop(self) -> None:
        """Fetch no more requests, and cancel the running attempts."""
        self.stopping.set()
        if self._waiting is not None:
            self._waiting.reschedule(0.0)
        self.cancel(lambda _: True)

    def cancel(self, is_unwanted: Callable[[str], bool]) -> None:
        """Cancel the running attempts whose id is unwanted."""
        for attempt_id, task in self.running.items():
            if is_unwanted(attempt_id):
                task.cancel()

    def cancel_training(self) -> None:
        """Cancel the running attempts of training."""
        self.cancel(is_training_trajectory)

    def cancel_trajectories(self, trajectories: Collection[str]) -> None:
        """Cancel the running attempts at these trajectories."""
        self.cancel(lambda attempt_id: attempt_id.rpartition("-a")[0] in trajectories)

    async def poll(
        self, incarnation: str, tasks: asyncio.TaskGroup, run: Callable[[RolloutRequest], Awaitable[None]]
    ) -> None:
        """Run requests in ``tasks`` until :meth:`stop`."""
        while not self.stopping.is_set():
            free = self.slots - len(self.running)
            if free <= 0:
                self._slot_free.clear()
                await self._slot_free.wait()
                continue
            try:
                requests = await self._acquire(incarnation, free)
            except RemoteError:
                await asyncio.sleep(_SCHEDULER_RETRY_S)  # the scheduler is restarting
                continue
            for request in requests:
                attempt_id = request.attempt_id
                if attempt_id in self.running:  # a restarted scheduler does not know that it is running here already
                    continue
                self.running[attempt_id] = tasks.create_task(self._run(request, run), name=attempt_id)

    async def _acquire(self, incarnation: str, free: int) -> list[RolloutRequest]:
        """Return requests for ``free`` slots; none if none arrived in time, or if the worker is stopping."""
        method = (
            RolloutScheduler.acquire_evaluation_requests
            if self.online_evaluation
            else RolloutScheduler.acquire_requests
        )
        holds = frozenset(self.running)
        try:
            async with asyncio.timeout(None) as self._waiting:
                requests = await self.scheduler.call(method, self.worker, incarnation, free, REQUEST_POLL_S, holds)
        except TimeoutError:
            return []
        finally:
            self._waiting = None
        return [] if self.stopping.is_set() else requests

    async def _run(self, request: RolloutRequest, run: Callable[[RolloutRequest], Awaitable[None]]) -> None:
        try:
            await run(request)
        finally:
            del self.running[request.attempt_id]
            self._slot_free.set()
