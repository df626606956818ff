"""The conductor's memory of tickets: kept back, waiting, out, by whom.  A pure state machine.

Every ticket is in exactly one place: in ``kept_back``, in ``waiting`` or in ``out`` with one worker.  It leaves for
good when its trajectory was acknowledged, its sample abandoned, or nobody need be sent for it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from protocol.trajectory import InfraFailure, Ticket

Key = tuple[str, int, int]
"""purpose, group, sample"""


def key_of(ticket: Ticket) -> Key:
    return (ticket.purpose, ticket.group, ticket.sample)


def name_of(ticket: Ticket) -> str:
    """Of one attempt at it, for its worker and for people."""
    return f"{ticket.trajectory_id}-a{ticket.attempt}"


@dataclass(frozen=True, slots=True)
class Out:
    ticket: Ticket
    worker: str
    """Name and incarnation: a restarted worker is another one."""
    since: float
    deadline: float
    """After this, by the conductor's clock, the ticket counts as lost."""
    settled: bool = False
    """What it is for is done without it: lost, it is not issued again."""


@dataclass(slots=True)
class Tickets:
    waiting: deque[Ticket] = field(default_factory=deque[Ticket])
    out: dict[Key, Out] = field(default_factory=dict[Key, Out])
    kept_back: list[Ticket] = field(default_factory=list[Ticket])
    """Nobody may have these before :meth:`release`."""

    def add(self, ticket: Ticket, *, first: bool = False) -> None:
        (self.waiting.appendleft if first else self.waiting.append)(ticket)

    def keep_back(self, ticket: Ticket) -> None:
        self.kept_back.append(ticket)

    def release(self) -> None:
        """What was kept back waits from now on, behind what does so already."""
        self.waiting.extend(self.kept_back)
        self.kept_back.clear()

    def hand_out(self, worker: str, count: int, now: float, deadline: float) -> list[Ticket]:
        """Up to ``count`` tickets, oldest first."""
        tickets = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        for ticket in tickets:
            self.out[key_of(ticket)] = Out(ticket, worker, now, deadline)
        return tickets

    def unheard(self, worker: str, holds: Collection[str]) -> list[Ticket]:
        """What ``worker`` was given and does not have, by :func:`name_of`: the answer was lost on its way."""
        return [
            out.ticket
            for out in self.out.values()
            if out.worker == worker and not out.settled and name_of(out.ticket) not in holds
        ]

    def finish(self, ticket: Ticket) -> Out | None:
        """The ticket is done with; None when it was not out (a late reply of a lost worker)."""
        found = self.out.get(key_of(ticket))
        if found is None or found.ticket.attempt != ticket.attempt:
            return None
        return self.out.pop(key_of(ticket))

    def reissue(self, ticket: Ticket, failure: InfraFailure) -> Ticket:
        """The same sample once more, ahead of what waits; the ticket remembers what matters of ``failure``."""
        vanished = ticket.vanished + (failure is InfraFailure.SANDBOX_VANISHED)
        again = replace(ticket, attempt=ticket.attempt + 1, vanished=vanished)
        self.add(again, first=True)
        return again

    def lost_with(self, worker: str, *, except_incarnation: str = "") -> list[Out]:
        """Take back what is out with ``worker`` (all its incarnations but one)."""
        return self._take_back(lambda out: out.worker.rsplit("#", 1)[0] == worker and out.worker != except_incarnation)

    def overdue(self, now: float) -> list[Out]:
        """Take back what is out past its deadline."""
        return self._take_back(lambda out: out.deadline < now)

    def _take_back(self, lost: Callable[[Out], bool]) -> list[Out]:
        found = [out for out in self.out.values() if lost(out)]
        for out in found:
            del self.out[key_of(out.ticket)]
        return found

    def withdraw(self, needless: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take away those that nobody has and that are ``needless``."""
        withdrawn = [ticket for ticket in (*self.kept_back, *self.waiting) if needless(ticket)]
        if withdrawn:
            self.kept_back = [ticket for ticket in self.kept_back if not needless(ticket)]
            self.waiting = deque(ticket for ticket in self.waiting if not needless(ticket))
        return withdrawn

    def cancel(self, unwanted: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take away those that are ``unwanted``, whoever has them."""
        return self.withdraw(unwanted) + [out.ticket for out in self._take_back(lambda out: unwanted(out.ticket))]

    def settle(self, key: Key) -> None:
        """Who has this one runs it for nothing."""
        if (found := self.out.get(key)) is not None:
            self.out[key] = replace(found, settled=True)

    def forget(self, purpose: str) -> int:
        """Drop every ticket of ``purpose``; how many there were."""
        before = len(self)
        self.withdraw(lambda ticket: ticket.purpose == purpose)
        for key in [key for key in self.out if key[0] == purpose]:
            del self.out[key]
        return before - len(self)

    def __len__(self) -> int:
        return len(self.kept_back) + len(self.waiting) + len(self.out)
