"""How a worker gets its requests: it asks the scheduler for as many as it has free slots, and runs each in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from protocol.trajectory import RolloutRequest, is_training_trajectory

REQUEST_POLL_S = 10.0
"""Longest wait for requests in one call; a request's deadline counts from before it."""
_SCHEDULER_RETRY_S = 1.0


@dataclass(slots=True)
class RequestPoller:
    """Keeps a worker's slots filled until it is stopped."""

    scheduler: Remote[RolloutScheduler]
    worker: str
    slots: int
    online_evaluation: bool
    """Ask for requests of evaluations beside training only."""
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    """Attempt id → its task."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _slot_free: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: asyncio.Timeout | None = None
    """Around the wait for requests, so that :meth:`stop` can end it."""

    def stop(self) -> None:
        """Ask for no more requests, and cancel those that run."""
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
                if attempt_id in self.running:  # a restarted scheduler does not know that it runs here already
                    continue
                self.running[attempt_id] = tasks.create_task(self._run(request, run), name=attempt_id)

    async def _acquire(self, incarnation: str, free: int) -> list[RolloutRequest]:
        """Return requests for ``free`` slots; none if none came in time, or once the worker is to stop."""
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
