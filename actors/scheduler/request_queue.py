"""The conductor's memory of tickets: kept back, waiting, out, by whom.  A pure state machine.

Every ticket is in exactly one place: in ``kept_back``, in ``waiting`` or in ``out`` with one worker.  It leaves for
good when its trajectory was acknowledged, its sample abandoned, or nobody need be sent for it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from protocol.trajectory import InfraFailure, RolloutRequest

RequestKey = tuple[str, int, int]
"""purpose, group, sample"""


def request_key(request: RolloutRequest) -> RequestKey:
    return (request.purpose, request.group, request.sample)


@dataclass(frozen=True, slots=True)
class AssignedRequest:
    request: RolloutRequest
    worker: str
    """Name and incarnation: a restarted worker is another one."""
    assigned_at: float
    deadline: float
    """After this, by the conductor's clock, the ticket counts as lost."""
    settled: bool = False
    """What it is for is done without it: lost, it is not issued again."""


@dataclass(slots=True)
class RolloutRequestQueue:
    waiting: deque[RolloutRequest] = field(default_factory=deque[RolloutRequest])
    assigned: dict[RequestKey, AssignedRequest] = field(default_factory=dict[RequestKey, AssignedRequest])
    held_back: list[RolloutRequest] = field(default_factory=list[RolloutRequest])
    """Nobody may have these before :meth:`release`."""

    def add(self, request: RolloutRequest, *, first: bool = False) -> None:
        (self.waiting.appendleft if first else self.waiting.append)(request)

    def hold_back(self, request: RolloutRequest) -> None:
        self.held_back.append(request)

    def release_held(self) -> None:
        """What was kept back waits from now on, behind what does so already."""
        self.waiting.extend(self.held_back)
        self.held_back.clear()

    def assign(self, worker: str, count: int, now: float, deadline: float) -> list[RolloutRequest]:
        """Up to ``count`` tickets, oldest first."""
        tickets = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        for ticket in tickets:
            self.assigned[request_key(ticket)] = AssignedRequest(ticket, worker, now, deadline)
        return tickets

    def find_undelivered(self, worker: str, holds: Collection[str]) -> list[RolloutRequest]:
        """What ``worker`` was given and does not have, by :func:`name_of`: the answer was lost on its way."""
        return [
            out.request
            for out in self.assigned.values()
            if out.worker == worker and not out.settled and out.request.attempt_id not in holds
        ]

    def finish(self, request: RolloutRequest) -> AssignedRequest | None:
        """The ticket is done with; None when it was not out (a late reply of a lost worker)."""
        found = self.assigned.get(request_key(request))
        if found is None or found.request.attempt != request.attempt:
            return None
        return self.assigned.pop(request_key(request))

    def reissue(self, request: RolloutRequest, failure: InfraFailure) -> RolloutRequest:
        """The same sample once more, ahead of what waits; the ticket remembers what matters of ``failure``."""
        vanished = request.vanished + (failure is InfraFailure.SANDBOX_VANISHED)
        again = replace(request, attempt=request.attempt + 1, vanished=vanished)
        self.add(again, first=True)
        return again

    def reclaim_from_worker(self, worker: str, *, except_incarnation: str = "") -> list[AssignedRequest]:
        """Take back what is out with ``worker`` (all its incarnations but one)."""
        return self._reclaim(lambda out: out.worker.rsplit("#", 1)[0] == worker and out.worker != except_incarnation)

    def reclaim_overdue(self, now: float) -> list[AssignedRequest]:
        """Take back what is out past its deadline."""
        return self._reclaim(lambda out: out.deadline < now)

    def _reclaim(self, lost: Callable[[AssignedRequest], bool]) -> list[AssignedRequest]:
        found = [out for out in self.assigned.values() if lost(out)]
        for out in found:
            del self.assigned[request_key(out.request)]
        return found

    def withdraw(self, needless: Callable[[RolloutRequest], bool]) -> list[RolloutRequest]:
        """Take away those that nobody has and that are ``needless``."""
        withdrawn = [ticket for ticket in (*self.held_back, *self.waiting) if needless(ticket)]
        if withdrawn:
            self.held_back = [ticket for ticket in self.held_back if not needless(ticket)]
            self.waiting = deque(ticket for ticket in self.waiting if not needless(ticket))
        return withdrawn

    def cancel(self, unwanted: Callable[[RolloutRequest], bool]) -> list[RolloutRequest]:
        """Take away those that are ``unwanted``, whoever has them."""
        return self.withdraw(unwanted) + [out.request for out in self._reclaim(lambda out: unwanted(out.request))]

    def settle(self, key: RequestKey) -> None:
        """Who has this one runs it for nothing."""
        if (found := self.assigned.get(key)) is not None:
            self.assigned[key] = replace(found, settled=True)

    def drop_purpose(self, purpose: str) -> int:
        """Drop every ticket of ``purpose``; how many there were."""
        before = len(self)
        self.withdraw(lambda ticket: ticket.purpose == purpose)
        for key in [key for key in self.assigned if key[0] == purpose]:
            del self.assigned[key]
        return before - len(self)

    def __len__(self) -> int:
        return len(self.held_back) + len(self.waiting) + len(self.assigned)
