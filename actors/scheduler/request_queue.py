"""The rollout requests of one purpose: held back, waiting, or assigned to a worker.  A pure state machine.

Every request is in exactly one of ``held_back``, ``waiting`` and ``assigned``.  It is removed for good when its
trajectory was acknowledged, its sample was abandoned, or its result is no longer needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import islice

from protocol.events import EmitEvent
from protocol.trajectory import InfraFailure, RolloutRequest

OVERDUE = "no report from its worker within the deadline"
"""Detail of the failure of a request whose deadline has passed."""
RequestKey = tuple[str, int, int]
"""(purpose, group, sample) of a request, the same for all its attempts."""


def request_key(request: RolloutRequest) -> RequestKey:
    """Return the key that all attempts at one sample share."""
    return (request.purpose, request.group, request.sample)


@dataclass(frozen=True, slots=True)
class AssignedRequest:
    """A request that is assigned to a worker."""

    request: RolloutRequest
    worker: str
    """``NAME#INCARNATION`` of the worker; a restarted worker has another incarnation."""
    assigned_at: float
    deadline: float
    """Time on the scheduler's clock after which the request counts as lost."""
    settled: bool = False
    """True if the sample is done without this request, which is then not issued again if it is lost."""


@dataclass(slots=True)
class RolloutRequestQueue:
    """All unfinished requests and the workers that they are assigned to."""

    waiting: deque[RolloutRequest] = field(default_factory=deque[RolloutRequest])
    assigned: dict[RequestKey, AssignedRequest] = field(default_factory=dict[RequestKey, AssignedRequest])
    held_back: list[RolloutRequest] = field(default_factory=list[RolloutRequest])
    """Requests that no worker may get before :meth:`release_held`."""

    def add(self, request: RolloutRequest, *, first: bool = False) -> None:
        """Add ``request`` to the waiting ones, as the last or, with ``first``, as the first."""
        (self.waiting.appendleft if first else self.waiting.append)(request)

    def hold_back(self, request: RolloutRequest) -> None:
        """Keep ``request`` until :meth:`release_held`."""
        self.held_back.append(request)

    def release_held(self) -> None:
        """Move the requests that were held back to the end of the waiting ones."""
        self.waiting.extend(self.held_back)
        self.held_back.clear()

    def assign(
        self,
        worker: str,
        count: int,
        now: float,
        deadline: float,
        can_start: Callable[[RolloutRequest], bool] = lambda _: True,
    ) -> list[RolloutRequest]:
        """Assign up to ``count`` waiting requests that ``can_start`` accepts to ``worker``, oldest first."""
        requests = [*islice(filter(can_start, self.waiting), max(0, count))]
        for request in requests:
            self.waiting.remove(request)
            self.assigned[request_key(request)] = AssignedRequest(request, worker, now, deadline)
        return requests

    def find_undelivered(self, worker: str, holds: Collection[str]) -> list[RolloutRequest]:
        """Return the requests assigned to ``worker`` that are not among the attempt ids it ``holds``, because the reply
        with them was lost."""
        return [
            out.request
            for out in self.assigned.values()
            if out.worker == worker and not out.settled and out.request.attempt_id not in holds
        ]

    def finish(self, request: RolloutRequest) -> AssignedRequest | None:
        """Remove a finished request; return None if it was not assigned (a late report of a lost worker)."""
        found = self.assigned.get(request_key(request))
        if found is None or found.request.attempt != request.attempt:
            return None
        return self.assigned.pop(request_key(request))

    def reissue(self, request: RolloutRequest, failure: InfraFailure, emit: EmitEvent) -> RolloutRequest:
        """Add the next attempt at the same sample ahead of all waiting requests, emit it and return it.

        The new attempt records whether ``failure`` was a sandbox that vanished."""
        vanished = request.vanished_sandboxes + (failure is InfraFailure.SANDBOX_VANISHED)
        again = replace(request, attempt=request.attempt + 1, vanished_sandboxes=vanished)
        self.add(again, first=True)
        emit(
            "rollout_request.reissued",
            trajectory=request.trajectory_id,
            attempt=again.attempt,
            reason=failure.value,
        )
        return again

    def reclaim_from_worker(self, worker: str, *, except_incarnation: str = "") -> list[AssignedRequest]:
        """Take back the requests of all incarnations of ``worker``, except one."""
        return self._reclaim(lambda out: out.worker.rsplit("#", 1)[0] == worker and out.worker != except_incarnation)

    def reclaim_overdue(self, now: float) -> list[AssignedRequest]:
        """Take back the requests whose deadline has passed."""
        return self._reclaim(lambda out: out.deadline < now)

    def _reclaim(self, is_lost: Callable[[AssignedRequest], bool]) -> list[AssignedRequest]:
        found = [out for out in self.assigned.values() if is_lost(out)]
        for out in found:
            del self.assigned[request_key(out.request)]
        return found

    def withdraw(self, is_needless: Callable[[RolloutRequest], bool]) -> list[RolloutRequest]:
        """Remove and return the needless requests that are not assigned."""
        withdrawn = [request for request in (*self.held_back, *self.waiting) if is_needless(request)]
        if withdrawn:
            self.held_back = [request for request in self.held_back if not is_needless(request)]
            self.waiting = deque(request for request in self.waiting if not is_needless(request))
        return withdrawn

    def cancel(self, is_unwanted: Callable[[RolloutRequest], bool]) -> list[RolloutRequest]:
        """Remove and return the unwanted requests, assigned ones included."""
        return self.withdraw(is_unwanted) + [out.request for out in self._reclaim(lambda out: is_unwanted(out.request))]

    def settle(self, key: RequestKey) -> None:
        """Mark the assigned request of ``key`` as no longer needed."""
        if (found := self.assigned.get(key)) is not None:
            self.assigned[key] = replace(found, settled=True)

    def clear(self) -> int:
        """Drop every request and return their number."""
        count = len(self)
        self.waiting.clear()
        self.assigned.clear()
        self.held_back.clear()
        return count

    def __len__(self) -> int:
        return len(self.held_back) + len(self.waiting) + len(self.assigned)
