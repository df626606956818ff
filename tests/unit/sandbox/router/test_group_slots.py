"""If these fail, two groups wait for each other's sandboxes forever, or one starts without slots for all of its
members."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SandboxStartError
from sandbox.http.auth import Access
from sandbox.pool.leases import GroupTooLarge, LeaseLimits, LeaseTable, SlotLease, SlotsExhausted, UnknownLease
from sandbox.providers.interface import SandboxGroup
from sandbox.providers.remote import RemotePool
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.tasks.task import Task
from tests.support.fakes.fake_clock import FakeClock
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server, serving

TASK = Task(id="t", instruction="x")
TTL = 600.0


def table(slots: int, clock: FakeClock | None = None) -> LeaseTable:
    return LeaseTable(LeaseLimits(tasks=slots, runs_per_task=1, ttl_s=TTL), clock or FakeClock())


def test_the_first_member_reserves_the_slots_of_its_group() -> None:
    one = table(4)
    (first,) = one.allocate_from_group("g", 3, "a").leases
    assert (len(one), one.reserved_slots()) == (3, {"g": 2})
    with pytest.raises(SlotsExhausted):
        one.allocate_from_group("h", 2, "x")
    others = [one.allocate_from_group("g", 3, name).leases[0] for name in "bc"]
    assert len({first.id, *(each.id for each in others)}) == 3
    assert (len(one), one.reserved_slots()) == (3, {})


def test_a_repeated_member_gets_the_same_slot_and_another_attempt_a_new_one() -> None:
    one = table(4)
    taken = [one.allocate_from_group("g", 2, name).leases[0].id for name in "ab"]
    assert one.allocate_from_group("g", 2, "b").leases[0].id == taken[1]
    assert one.allocate_from_group("g", 2, "b-again").leases[0].id not in taken
    assert len(one) == 3


def test_a_group_that_can_never_fit_is_refused() -> None:
    with pytest.raises(GroupTooLarge, match="needs 5 slots, but this server has only 4"):
        table(4).allocate_from_group("g", 5, "a")


def test_a_reserved_slot_lives_as_long_as_the_leases_of_its_group() -> None:
    """A shorter life would leave none for a late member; a longer one would keep a dead run's slots."""
    clock = FakeClock()
    one = table(2, clock)
    (first,) = one.allocate_from_group("g", 2, "a").leases
    for _ in range(5):
        clock.now += TTL - 1
        one.renew(first.id)
    (late,) = one.allocate_from_group("g", 2, "b").leases
    one.close(first.id)
    clock.now += TTL
    with pytest.raises(UnknownLease):
        one.get(late.id)
    assert one.groups() == one.reserved_slots() == {}


def test_the_slot_of_a_dead_member_is_freed_while_its_group_continues() -> None:
    clock = FakeClock()
    one = table(2, clock)
    alive, dead = (one.allocate_from_group("g", 2, name).leases[0] for name in "ab")
    clock.now += TTL - 1
    one.renew(alive.id)
    clock.now += 1
    assert [lease.id for lease in one.reap()] == [dead.id]


@dataclass
class Member:
    group: int
    number: int
    attempt: int = 0
    lease: SlotLease | None = None

    @property
    def request_id(self) -> str:
        return f"{self.number}-a{self.attempt}"


@dataclass
class GroupMembers:
    """The members of a run on one server: requests leave in order, each to a free slot of a server."""

    table: LeaseTable
    size: int
    places: int
    waiting: deque[Member]
    begun: set[int] = field(default_factory=set[int])
    at_work: list[Member] = field(default_factory=list[Member])
    done: int = 0

    def issue(self) -> None:
        while self.waiting and len(self.at_work) < self.places:
            self.at_work.append(self.waiting.popleft())

    def move(self, member: Member, *, fails: bool) -> bool:
        """Return whether it made progress."""
        if member.lease is None:
            return self._asks(member)
        self.table.close(member.lease.id)
        self.at_work.remove(member)
        if fails and not member.attempt:
            self.waiting.appendleft(Member(member.group, member.number, member.attempt + 1))
        else:
            self.done += 1
        return True

    def _asks(self, member: Member) -> bool:
        group = f"g{member.group}"
        try:
            if member.attempt:
                reply = self.table.allocate("t", f"{group}-{member.request_id}")
            else:
                reply = self.table.allocate_from_group(group, self.size, member.request_id)
        except SlotsExhausted:
            return False
        (member.lease,) = reply.leases
        if not member.attempt and member.group not in self.begun:
            self.begun.add(member.group)
            assert self.table.groups()[group] == self.size, "a member has begun without a place for all"
        return True


@given(data=st.data(), size=st.integers(1, 4), groups=st.integers(1, 4), spare=st.integers(0, 3))
def test_groups_do_not_deadlock_in_any_order_of_their_members(
    data: st.DataObject, size: int, groups: int, spare: int
) -> None:
    places = data.draw(st.integers(1, size * groups), "places of the servers")
    members = deque(Member(group, number) for group in range(groups) for number in range(size))
    run = GroupMembers(table(size + spare), size, places, members)
    order = data.draw(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=60), "who comes when, and fails")
    for choice, fails in order:
        run.issue()
        if run.at_work:
            run.move(run.at_work[choice % len(run.at_work)], fails=fails)
        assert len(run.table) <= size + spare
    while run.waiting or run.at_work:
        run.issue()
        assert any(run.move(member, fails=False) for member in tuple(run.at_work)), "nobody can go on"
    assert (run.done, len(run.table)) == (size * groups, 0)


async def test_group_members_start_when_all_fit_and_return_their_slots_one_by_one(
    tmp_path: Path,
) -> None:
    """The members come from two servers, as in a run."""
    limits = LeaseLimits(tasks=4, runs_per_task=1)
    async with (
        pool_server(FakeProvider(), tmp_path, limits) as (url, service),
        RemotePool(url, acquire_s=60.0) as one,
        RemotePool(url, acquire_s=60.0) as other,
    ):
        first = [await pool.open(TASK, 600.0, SandboxGroup("run/g1", 3)) for pool in (one, other)]
        assert service.table.reserved_slots() == {"run/g1": 1}
        async with asyncio.TaskGroup() as tasks:
            second = [tasks.create_task(pool.open(TASK, 600.0, SandboxGroup("run/g2", 3))) for pool in (one, other)]
            late = await one.open(TASK, 600.0, SandboxGroup("run/g1", 3))
            await first[0].close()
            assert not any(each.done() for each in second)
            await late.close()
        assert service.table.groups() == {"run/g1": 1, "run/g2": 3}
        assert all(each.result().alive for each in second)


async def test_a_group_without_room_is_an_infrastructure_failure_and_holds_no_slot(tmp_path: Path) -> None:
    limits = LeaseLimits(tasks=2, runs_per_task=1)
    async with (
        pool_server(FakeProvider(), tmp_path, limits) as (url, service),
        RemotePool(url, acquire_s=60.0) as patient,
        RemotePool(url, acquire_s=0.5) as pool,
    ):
        single = await patient.open(TASK)
        for size in (2, 3):  # not now, and never
            with pytest.raises(SandboxStartError):
                await pool.open(TASK, 600.0, SandboxGroup("g", size))
        await single.close()
        assert len(service.table) == 0


async def test_a_group_over_several_servers_is_reserved_before_it_starts(tmp_path: Path) -> None:
    limits = LeaseLimits(tasks=3, runs_per_task=1)
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(pool_server(FakeProvider(), tmp_path / name, limits)) for name in "ab"
        ]
        tables = [service.table for _, service in servers]
        app = create_app(lambda: RoutedPoolServers(tuple(url for url, _ in servers), "", 60.0), Access("127.0.0.1"))
        pool = await stack.enter_async_context(
            RemotePool(await stack.enter_async_context(serving(app)), acquire_s=60.0)
        )
        first = await pool.open(TASK, 600.0, SandboxGroup("g", 5))
        assert sum(map(len, tables)) == 5
        assert sum(each.reserved_slots()["g"] for each in tables) == 4
        rest = [await pool.open(TASK, 600.0, SandboxGroup("g", 5)) for _ in range(4)]
        assert len({each.lease_id for each in (first, *rest)}) == 5
        assert sum(map(len, tables)) == 5
        again = await pool.open(TASK, 600.0, SandboxGroup("g", 5))  # another attempt: a place of its own
        assert sum(map(len, tables)) == 6
        for each in (first, *rest, again):
            await each.close()
        assert sum(map(len, tables)) == 0


async def test_a_restarted_server_still_keeps_reserved_slots(tmp_path: Path) -> None:
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (_, service):
        service.allocate_group("g", 3, "a")
        service.allocate_group("g", 3, "b")
        for lease in service.table.all():
            service.table.close(lease.id)  # it is killed: nothing of it ends them
    async with pool_server(provider, tmp_path) as (_, service):
        assert (service.table.groups(), service.table.reserved_slots()) == ({"g": 3}, {"g": 1})
        taken = service.allocate_group("g", 3, "b")
        assert (taken.reused, len(service.table)) == (True, 3)
