"""The pool server's leases: each gives a client one sandbox slot until a deadline. Pure rules without I/O or clock.

Allocation, a heartbeat, and the start and end of an operation renew a lease. A lease with an operation in progress
never expires. Nothing here waits or locks, so an operation cannot delay the heartbeat that keeps its lease alive.

Slots follow OpenClaw: at most ``tasks`` different task keys at once, and at most ``runs_per_task`` leases for each. A
group (as in SETA) is one task key, gets all of its slots or none, and may use all that are free. Repeating an
allocation with the same request id returns the same lease.

A group's slots may also be allocated one by one, each with a request id. The first request reserves all of them, so
that two groups cannot each hold some slots and wait for the other's. A reserved slot expires with the allocated slots
of its group.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from protocol.errors import LongshoreError

MAX_GROUP = 16
"""Maximum number of slots of one group, as in SETA."""
REMEMBER_S = 300.0
"""Seconds for which a service remembers a request that may be repeated."""
EXPIRY_CHECK_S = 5.0
"""Seconds between two checks for what has expired."""
_MIN_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
_SMOOTHING = 0.3


class UnknownLease(LongshoreError):
    """There is no such lease: it never existed, was closed, or has expired."""

    def __init__(self, lease_id: str) -> None:
        super().__init__(f"Unknown lease {lease_id}: it was closed, has expired, or belongs to another server")


class SlotsExhausted(LongshoreError):
    """No slot is free; try again after ``retry_after_s``."""

    def __init__(self, code: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.code, self.retry_after_s = code, retry_after_s


class GroupConflict(LongshoreError):
    """The group already holds a different number of slots."""

    def __init__(self, group: str, held: int, requested: int) -> None:
        super().__init__(f"group {group} holds {held} slots, not {requested}: release it first")


class GroupTooLarge(LongshoreError):
    """The group needs more slots than the server has."""


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """Limits on the number of leases and on their lifetime."""

    tasks: int = 16
    runs_per_task: int = 8
    ttl_s: float = 600.0
    """Seconds until a lease expires that is not renewed."""
    remember_s: float = REMEMBER_S
    """Seconds for which an allocation's request id is remembered."""

    @property
    def slots(self) -> int:
        """Total number of slots."""
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
    """Number of operations in progress."""
    given_at: float = 0.0
    reserved: bool = False
    """True while it waits for the request of a member of its group."""


@dataclass(frozen=True, slots=True)
class LeaseAllocation:
    """Leases allocated for one request."""

    leases: tuple[SlotLease, ...]
    reused: bool
    """True if an earlier request with the same id or group got them."""


@dataclass(slots=True)
class RetryEstimate:
    """Estimates when the next slot becomes free: the smoothed interval between the recent ones."""

    _freed_at: float | None = None
    _interval_s: float = 0.0

    def slot_freed(self, now: float) -> None:
        """Record that a slot became free at ``now``, monotonic seconds."""
        if self._freed_at is not None:
            self._interval_s += _SMOOTHING * (now - self._freed_at - self._interval_s)
        self._freed_at = now

    @property
    def seconds(self) -> float:
        """Seconds after which a refused request should try again."""
        return min(max(self._interval_s, _MIN_RETRY_S), _MAX_RETRY_S)


@dataclass(slots=True)
class LeaseTable:
    """All leases of one server. Every method is synchronous, so that each is atomic."""

    limits: LeaseLimits
    now: Callable[[], float]
    _leases: dict[str, SlotLease] = field(default_factory=dict[str, SlotLease])
    _retry: RetryEstimate = field(default_factory=RetryEstimate)

    def allocate(self, task_key: str, request_id: str = "") -> LeaseAllocation:
        """Allocate one slot. Raises SlotsExhausted."""
        if request_id:
            existing = [
                lease
                for lease in self._leases.values()
                if (lease.task_key, lease.request_id) == (task_key, request_id)
                and self.now() < lease.given_at + self.limits.remember_s
                and not self._expired(lease)
            ]
            if existing:
                self.renew(existing[0].id)
                return LeaseAllocation((existing[0],), reused=True)
        return LeaseAllocation(self._allocate(task_key, 1, request_id=request_id), reused=False)

    def allocate_group(self, group: str, slots: int, *, reserve: bool = False) -> LeaseAllocation:
        """Allocate all slots of a group or none; with ``reserve`` they are reserved for requests for single slots.

        Raises SlotsExhausted, GroupConflict, GroupTooLarge.
        """
        if slots > self.limits.slots:
            raise GroupTooLarge(f"the group needs {slots} slots, but this server has only {self.limits.slots}")
        held = self.group(group)
        if held and len(held) != slots:
            raise GroupConflict(group, len(held), slots)
        for lease in held:
            self.renew(lease.id)
        given = held or self._allocate(group, slots, group=group)
        for lease in given if reserve and not held else ():
            lease.reserved = True
        return LeaseAllocation(given, reused=bool(held))

    def allocate_from_group(self, group: str, slots: int, request_id: str) -> LeaseAllocation:
        """Allocate one slot of a group; the group's first request reserves all ``slots``.

        If all are allocated, for example when a member tries again, the request gets one more. Raises
        SlotsExhausted, GroupTooLarge.
        """
        held = self.group(group)
        for lease in held:
            if lease.request_id == request_id:
                self.renew(lease.id)
                return LeaseAllocation((lease,), reused=True)
        held = held or self.allocate_group(group, slots, reserve=True).leases
        taken = next((lease for lease in held if lease.reserved), None) or self._allocate(group, 1, group=group)[0]
        taken.reserved, taken.request_id = False, request_id
        self.renew(taken.id)
        return LeaseAllocation((taken,), reused=False)

    def _allocate(self, task_key: str, count: int, *, request_id: str = "", group: str = "") -> tuple[SlotLease, ...]:
        runs = sum(lease.task_key == task_key for lease in self._leases.values())
        keys = self.task_keys()
        if task_key not in keys and len(keys) >= self.limits.tasks:
            raise SlotsExhausted(
                "TASK_SLOTS_EXHAUSTED", f"Worker at task capacity: {len(keys)}/{self.limits.tasks}", self._retry.seconds
            )
        for what, used, most in (
            (f"Task {task_key}", runs, self.limits.slots if group else self.limits.runs_per_task),
            ("Worker", len(self._leases), self.limits.slots),
        ):
            if used + count > most:
                message = f"{what} at run capacity: {used}/{most}, {count} requested"
                raise SlotsExhausted("RUN_SLOTS_EXHAUSTED", message, self._retry.seconds)
        now = self.now()
        given = tuple(
            SlotLease(
                f"run-{uuid.uuid4().hex[:16]}", task_key, now + self.limits.ttl_s, request_id, group, given_at=now
            )
            for _ in range(count)
        )
        self._leases.update((lease.id, lease) for lease in given)
        return given

    def restore(self, lease: SlotLease) -> None:
        """Take over a lease of an earlier server process as if it were allocated now, even beyond the limits."""
        lease.given_at = self.now()
        lease.deadline = lease.given_at + self.limits.ttl_s
        self._leases[lease.id] = lease

    def get(self, lease_id: str) -> SlotLease:
        """Return a lease. Raises UnknownLease, also for an expired lease that was not removed yet."""
        lease = self._leases.get(lease_id)
        if lease is None or self._expired(lease):
            raise UnknownLease(lease_id)
        return lease

    def renew(self, lease_id: str) -> SlotLease:
        """Move a lease's deadline, and those of its group's reserved slots. Raises UnknownLease."""
        lease = self.get(lease_id)
        lease.deadline = self.now() + self.limits.ttl_s
        for member in self.group(lease.group) if lease.group else ():
            if member.reserved:
                member.deadline = lease.deadline
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

    def _expired(self, lease: SlotLease) -> bool:
        return not lease.busy and self.now() >= lease.deadline

    def reap(self) -> tuple[SlotLease, ...]:
        """Remove the expired leases and return them; the caller must close what they hold."""
        expired = tuple(lease for lease in self._leases.values() if self._expired(lease))
        for lease in expired:
            del self._leases[lease.id]
            self._retry.slot_freed(self.now())
        return expired

    def close(self, lease_id: str) -> SlotLease | None:
        """Remove a lease and return it, or None if there is none."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._retry.slot_freed(self.now())
        return lease

    def group(self, name: str) -> tuple[SlotLease, ...]:
        """Return a group's leases that have not expired."""
        return tuple(lease for lease in self._leases.values() if lease.group == name and not self._expired(lease))

    def groups(self) -> dict[str, int]:
        """Count each group's leases that have not expired."""
        return Counter(lease.group for lease in self._leases.values() if lease.group and not self._expired(lease))

    def reserved_slots(self) -> dict[str, int]:
        """Count each group's reserved slots."""
        return Counter(lease.group for lease in self._leases.values() if lease.reserved and not self._expired(lease))

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
