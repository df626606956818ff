"""Which client may use which sandbox slot, and until when: the pool server's rules, without I/O or clock.

A lease ends at a deadline, which every sign of life moves: allocation, heartbeat, the start and the end of an
operation. A lease with an operation under way never expires. Nothing here waits or locks, so an operation cannot hold
up the heartbeat that keeps its lease alive.

Slots follow OpenClaw: at most ``tasks`` different task keys at once, and at most ``runs_per_task`` leases for each. A
group (as in SETA) is one task key, gets all of its slots or none, and may use all that are free. An allocation that is
repeated with its request id gets the same lease.

A group's slots may also be allocated one by one, each with a request id: the first request reserves all of them for the
others, so that no two groups wait for each other's slots while each holds some. A reserved slot lives as long as the
allocated ones of its group.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from protocol.errors import LongshoreError

MAX_GROUP = 16
"""Most slots of one group, as in SETA."""
_SOON_S = 1.0
_MAX_RETRY_S = 30.0
_SMOOTHING = 0.3


class UnknownLease(LongshoreError):
    """There is no such lease: it was never given, was closed, or has expired."""

    def __init__(self, lease_id: str) -> None:
        super().__init__(f"Unknown lease {lease_id}: it was closed, it expired, or another server gave it")


class SlotsExhausted(LongshoreError):
    """No slot is free; try again after ``retry_after_s``."""

    def __init__(self, code: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.code, self.retry_after_s = code, retry_after_s


class GroupConflict(LongshoreError):
    """A group of that name holds another number of slots."""

    def __init__(self, group: str, held: int, asked: int) -> None:
        super().__init__(f"group {group} holds {held} slots, not {asked}: release it first")


class GroupTooLarge(LongshoreError):
    """The group has more slots than there are."""


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """How many leases there may be and how long they live."""

    tasks: int = 16
    runs_per_task: int = 8
    ttl_s: float = 600.0
    """Seconds that a lease lives without a sign of life."""
    remember_s: float = 300.0
    """Seconds for which an allocation's request id is remembered."""

    @property
    def slots(self) -> int:
        """Number of all slots."""
        return self.tasks * self.runs_per_task


@dataclass(slots=True)
class SlotLease:
    """One allocated or reserved slot."""

    id: str
    task_key: str
    deadline: float
    request_id: str = ""
    group: str = ""
    busy: int = 0
    """Number of operations under way."""
    given_at: float = 0.0
    reserved: bool = False
    """Whether it is reserved for a member of its group that has not asked for it yet."""


@dataclass(frozen=True, slots=True)
class LeaseAllocation:
    """The leases given to one request."""

    leases: tuple[SlotLease, ...]
    reused: bool
    """Whether they had been given before, to the same request id or group."""


@dataclass(slots=True)
class LeaseTable:
    """All leases of one server. Every method is synchronous, so that nobody sees it half done."""

    limits: LeaseLimits
    now: Callable[[], float]
    _leases: dict[str, SlotLease] = field(default_factory=dict[str, SlotLease])
    _freed_at: float | None = None
    _freed_every_s: float = 0.0
    """Smoothed."""

    def allocate(self, task_key: str, request_id: str = "") -> LeaseAllocation:
        """Allocate one slot. Raises SlotsExhausted."""
        if request_id:
            again = [
                lease
                for lease in self._leases.values()
                if (lease.task_key, lease.request_id) == (task_key, request_id)
                and self.now() < lease.given_at + self.limits.remember_s
                and not self._over(lease)
            ]
            if again:
                self.renew(again[0].id)
                return LeaseAllocation((again[0],), reused=True)
        return LeaseAllocation(self._give(task_key, 1, request_id=request_id), reused=False)

    def allocate_group(self, group: str, slots: int, *, reserve: bool = False) -> LeaseAllocation:
        """Allocate all slots of a group or none; with ``reserve`` they wait for requests that ask for them one by one.

        Raises SlotsExhausted, GroupConflict, GroupTooLarge.
        """
        if slots > self.limits.slots:
            raise GroupTooLarge(f"a group of {slots} slots has no place where there are {self.limits.slots}")
        held = self.group(group)
        if held and len(held) != slots:
            raise GroupConflict(group, len(held), slots)
        for lease in held:
            self.renew(lease.id)
        given = held or self._give(group, slots, group=group)
        for lease in given if reserve and not held else ():
            lease.reserved = True
        return LeaseAllocation(given, reused=bool(held))

    def allocate_from_group(self, group: str, slots: int, request_id: str) -> LeaseAllocation:
        """Allocate one slot of a group; the group's first request reserves all ``slots``.

        A request that comes when all are allocated, for example another attempt of a member, gets one more. Raises
        SlotsExhausted, GroupTooLarge.
        """
        held = self.group(group)
        for lease in held:
            if lease.request_id == request_id:
                self.renew(lease.id)
                return LeaseAllocation((lease,), reused=True)
        held = held or self.allocate_group(group, slots, reserve=True).leases
        taken = next((lease for lease in held if lease.reserved), None) or self._give(group, 1, group=group)[0]
        taken.reserved, taken.request_id = False, request_id
        self.renew(taken.id)
        return LeaseAllocation((taken,), reused=False)

    def _give(self, task_key: str, count: int, *, request_id: str = "", group: str = "") -> tuple[SlotLease, ...]:
        runs = sum(lease.task_key == task_key for lease in self._leases.values())
        keys = self.task_keys()
        if task_key not in keys and len(keys) >= self.limits.tasks:
            raise SlotsExhausted(
                "TASK_SLOTS_EXHAUSTED", f"Worker at task capacity: {len(keys)}/{self.limits.tasks}", self._retry_s()
            )
        for what, used, most in (
            (f"Task {task_key}", runs, self.limits.slots if group else self.limits.runs_per_task),
            ("Worker", len(self._leases), self.limits.slots),
        ):
            if used + count > most:
                said = f"{what} at run capacity: {used}/{most}, {count} asked for"
                raise SlotsExhausted("RUN_SLOTS_EXHAUSTED", said, self._retry_s())
        now = self.now()
        given = tuple(
            SlotLease(
                f"run-{uuid.uuid4().hex[:16]}", task_key, now + self.limits.ttl_s, request_id, group, given_at=now
            )
            for _ in range(count)
        )
        self._leases.update((lease.id, lease) for lease in given)
        return given

    def _retry_s(self) -> float:
        """The recent average time from one freed slot to the next."""
        return min(max(self._freed_every_s, _SOON_S), _MAX_RETRY_S)

    def _freed(self) -> None:
        now = self.now()
        if self._freed_at is not None:
            self._freed_every_s += _SMOOTHING * (now - self._freed_at - self._freed_every_s)
        self._freed_at = now

    def restore(self, lease: SlotLease) -> None:
        """Take over a lease of an earlier server as if it had been given now; it counts even beyond the limits."""
        lease.given_at = self.now()
        lease.deadline = lease.given_at + self.limits.ttl_s
        self._leases[lease.id] = lease

    def get(self, lease_id: str) -> SlotLease:
        """Return a lease. Raises UnknownLease, also for an expired lease that was not reaped yet."""
        lease = self._leases.get(lease_id)
        if lease is None or self._over(lease):
            raise UnknownLease(lease_id)
        return lease

    def renew(self, lease_id: str) -> SlotLease:
        """Record a sign of life. Raises UnknownLease."""
        lease = self.get(lease_id)
        lease.deadline = self.now() + self.limits.ttl_s
        for beside in self.group(lease.group) if lease.group else ():
            if beside.reserved:
                beside.deadline = lease.deadline
        return lease

    @contextmanager
    def operation(self, lease_id: str) -> Generator[SlotLease]:
        """Renew a lease at the start and the end of the block, and keep it from expiring in between. Raises
        UnknownLease."""
        lease = self.renew(lease_id)
        lease.busy += 1
        try:
            yield lease
        finally:
            lease.busy -= 1
            lease.deadline = self.now() + self.limits.ttl_s

    def _over(self, lease: SlotLease) -> bool:
        return not lease.busy and self.now() >= lease.deadline

    def reap(self) -> tuple[SlotLease, ...]:
        """Remove the expired leases and return them; the caller must close what they hold."""
        over = tuple(lease for lease in self._leases.values() if self._over(lease))
        for lease in over:
            del self._leases[lease.id]
            self._freed()
        return over

    def close(self, lease_id: str) -> SlotLease | None:
        """Remove a lease; None when there is none."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._freed()
        return lease

    def group(self, name: str) -> tuple[SlotLease, ...]:
        """Return a group's leases that have not expired."""
        return tuple(lease for lease in self._leases.values() if lease.group == name and not self._over(lease))

    def groups(self) -> dict[str, int]:
        """Count each group's leases that have not expired."""
        return Counter(lease.group for lease in self._leases.values() if lease.group and not self._over(lease))

    def reserved_slots(self) -> dict[str, int]:
        """Count each group's reserved slots."""
        return Counter(lease.group for lease in self._leases.values() if lease.reserved and not self._over(lease))

    def task_keys(self) -> dict[str, int]:
        """Count each task key's leases."""
        counts: dict[str, int] = {}
        for lease in self._leases.values():
            counts[lease.task_key] = counts.get(lease.task_key, 0) + 1
        return counts

    def all(self) -> Iterable[SlotLease]:
        """Return all leases."""
        return tuple(self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)
