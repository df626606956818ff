"""If these fail, a sandbox is taken from an agent that still uses it, or withheld from waiting requests."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from sandbox.pool.leases import (
    GroupConflict,
    GroupTooLarge,
    LeaseLimits,
    LeaseTable,
    SlotLease,
    SlotsExhausted,
    UnknownLease,
)
from tests.support.fakes.fake_clock import FakeClock

TTL = 10.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def table(clock: FakeClock) -> LeaseTable:
    return LeaseTable(LeaseLimits(tasks=2, runs_per_task=2, ttl_s=TTL), clock)


def test_an_operation_longer_than_the_time_to_live_keeps_its_lease(table: LeaseTable, clock: FakeClock):
    (lease,) = table.allocate("t").leases
    with table.operation(lease.id):
        clock.now += 100 * TTL
        assert not table.reap()
        table.renew(lease.id)
    clock.now += TTL * 0.9
    assert not table.reap()
    clock.now += TTL * 0.2
    assert table.reap() == (lease,)


def test_a_heartbeat_moves_the_deadline(table: LeaseTable, clock: FakeClock):
    (lease,) = table.allocate("t").leases
    for _ in range(5):
        clock.now += TTL * 0.9
        table.renew(lease.id)
    assert table.get(lease.id) is lease


def test_an_expired_lease_is_unknown_even_before_it_is_reaped(table: LeaseTable, clock: FakeClock):
    (lease,) = table.allocate("t", "r").leases
    clock.now += TTL
    with pytest.raises(UnknownLease, match=f"Unknown lease {lease.id}"):
        table.renew(lease.id)


def test_expired_leases_are_handed_over_for_closing_even_when_the_table_is_full(table: LeaseTable, clock: FakeClock):
    """OpenClaw's server drops them from its tables and then refuses, and their containers leak."""
    old = table.allocate("t").leases + table.allocate("t").leases
    clock.now += TTL
    new = table.reap()
    assert new == old
    assert not table.reap()
    table.allocate("t")


def test_slots_are_bounded_by_task_and_by_runs(table: LeaseTable):
    table.allocate("a"), table.allocate("a"), table.allocate("b")
    with pytest.raises(SlotsExhausted) as runs:
        table.allocate("a")
    with pytest.raises(SlotsExhausted) as tasks:
        table.allocate("c")
    assert (runs.value.code, tasks.value.code) == ("RUN_SLOTS_EXHAUSTED", "TASK_SLOTS_EXHAUSTED")
    assert 0 < runs.value.retry_after_s <= 30


def test_the_retry_delay_follows_the_rate_at_which_slots_become_free(table: LeaseTable, clock: FakeClock):
    def retry_s() -> float:
        with pytest.raises(SlotsExhausted) as refused:
            table.allocate("a")
        return refused.value.retry_after_s

    held = [table.allocate("a").leases[0] for _ in range(2)]
    assert retry_s() == 1.0
    for _ in range(30):
        clock.now += 5.0
        table.close(held.pop(0).id)
        held.append(table.allocate("a").leases[0])
    assert retry_s() == pytest.approx(5.0, rel=0.01)


def test_the_same_request_gets_the_same_lease(table: LeaseTable, clock: FakeClock):
    first = table.allocate("a", "r1")
    again = table.allocate("a", "r1")
    assert again.reused
    assert again.leases == first.leases
    assert table.allocate("b", "r1").leases != first.leases
    table.close(first.leases[0].id)
    assert table.allocate("a", "r1").leases != first.leases


def test_the_same_request_gets_the_same_lease_from_the_server_s_successor(clock: FakeClock):
    clock.now = 1e6
    limits = LeaseLimits(ttl_s=1e4, remember_s=300.0)
    (lease,) = LeaseTable(limits, clock).allocate("a", "r1").leases
    after = LeaseTable(limits, clock)
    after.restore(SlotLease(lease.id, lease.task_key, 0.0, lease.request_id))
    assert after.allocate("a", "r1").leases[0].id == lease.id
    assert len(after) == 1
    clock.now += 301.0
    assert after.allocate("a", "r1").leases[0].id != lease.id


def test_a_group_gets_all_of_its_slots_or_none(table: LeaseTable):
    table.allocate("g")
    with pytest.raises(SlotsExhausted):
        table.allocate_group("h", 4)
    assert len(table) == 1
    group = table.allocate_group("h", 2)
    assert len({lease.id for lease in group.leases}) == 2
    assert table.allocate_group("h", 2).leases == group.leases
    with pytest.raises(GroupConflict, match="release it first"):
        table.allocate_group("h", 1)


def test_an_expired_group_is_no_longer_counted(table: LeaseTable, clock: FakeClock):
    table.allocate("g")
    table.allocate_group("g", 2)
    assert table.groups() == {"g": 2}
    clock.now += TTL
    assert table.groups() == {}


def test_a_group_may_be_larger_than_the_single_slots_of_a_task(table: LeaseTable):
    assert len(table.allocate_group("g", 4).leases) == 4
    with pytest.raises(SlotsExhausted) as full:
        table.allocate("a")
    assert full.value.code == "RUN_SLOTS_EXHAUSTED"
    with pytest.raises(GroupTooLarge, match="needs 5 slots, but this server has only 4"):
        table.allocate_group("h", 5)


class LeasesMachine(RuleBasedStateMachine):
    """In any order of events: limits hold, busy leases live, and others live exactly their time."""

    leases: Bundle[SlotLease] = Bundle("leases")
    busy: Bundle[object] = Bundle("busy")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(100.0)
        self.table = LeaseTable(LeaseLimits(tasks=2, runs_per_task=3, ttl_s=TTL), self.clock)
        self.alive: dict[str, float] = {}
        self.working: dict[str, int] = {}
        self.groups = 0

    def over(self, lease: str) -> bool:
        return not self.working.get(lease) and self.clock.now >= self.alive[lease]

    @rule(target=leases, task=st.sampled_from("abc"), slots=st.integers(0, 7))
    def allocate(self, task: str, slots: int):
        self.reap()
        before = dict(self.alive)
        self.groups += 1
        try:
            reply = self.table.allocate_group(f"{task}{self.groups}", slots) if slots else self.table.allocate(task)
        except GroupTooLarge:
            assert slots > 6
            return multiple()
        except SlotsExhausted:
            assert self.alive == before
            return multiple()
        for lease in reply.leases:
            self.alive[lease.id] = self.clock.now + TTL
        return multiple(*reply.leases)

    @rule(lease=leases)
    def renew(self, lease: SlotLease):
        if lease.id not in self.alive or self.over(lease.id):
            with pytest.raises(UnknownLease):
                self.table.renew(lease.id)
        else:
            self.table.renew(lease.id)
            self.alive[lease.id] = self.clock.now + TTL

    @rule(target=busy, lease=leases)
    def begin(self, lease: SlotLease):
        if lease.id not in self.alive or self.over(lease.id):
            return multiple()
        operation = self.table.operation(lease.id)
        operation.__enter__()
        self.working[lease.id] = self.working.get(lease.id, 0) + 1
        self.alive[lease.id] = self.clock.now + TTL
        return (lease.id, operation)

    @rule(begun=consumes(busy))
    def end(self, begun):
        lease, operation = begun
        operation.__exit__(None, None, None)
        self.working[lease] -= 1
        if lease in self.alive:
            self.alive[lease] = self.clock.now + TTL

    @rule(lease=leases)
    def close(self, lease: SlotLease):
        assert (self.table.close(lease.id) is not None) == (lease.id in self.alive)
        self.alive.pop(lease.id, None)

    @rule(seconds=st.floats(0, 2 * TTL))
    def pass_time(self, seconds: float):
        self.clock.now += seconds

    @rule()
    def reap(self):
        expected = {lease for lease in self.alive if self.over(lease)}
        assert {lease.id for lease in self.table.reap()} == expected
        for lease in expected:
            del self.alive[lease]

    @invariant()
    def limits_hold(self):
        keys = self.table.task_keys()
        assert len(keys) <= 2
        assert all(runs <= 3 for key, runs in keys.items() if len(key) == 1)
        assert sum(keys.values()) <= 6
        assert sum(keys.values()) == len(self.alive)


TestLeases = LeasesMachine.TestCase
