"""If these fail, engines stop decoding for each new version, or wait for weights that would cost them nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.messages import WeightLoadReport
from launch.weight_sync.rolling_update import RollingUpdate, stagger_interval_s
from protocol.weights import WeightVersion


@dataclass
class FakeTime:
    """Passes only when everybody sleeps."""

    now: float = 0.0
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def until(self, _: asyncio.Event, seconds: float) -> None:
        """Nobody sets it here."""
        await self.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def pass_for(self, task: asyncio.Task[None]) -> None:
        while not task.done():
            for _ in range(10):  # whoever can go on does
                await asyncio.sleep(0)
            if self.sleepers:
                first = min(self.sleepers, key=lambda sleeper: sleeper[0])
                self.sleepers.remove(first)
                self.now = first[0]
                first[1].set()


def stood(pause_s: float, requests: int = 8) -> WeightLoadReport:
    return WeightLoadReport(
        version=WeightVersion(1), pause_ms=pause_s * 1000, paused_requests=requests, load_ms=0.0, prefetch_ms=0.0
    )


@dataclass
class FakeRollingEngines:
    """Engines that stand still for so long in each exchange, with so many requests."""

    engines: int
    share: float
    loss: float
    pause_s: float
    requests: int = 8
    time: FakeTime = field(default_factory=FakeTime)
    begun: list[float] = field(default_factory=list)

    async def exchange(self, pace: RollingUpdate) -> None:
        async with pace.update_slot() as took:
            self.begun.append(self.time.now)
            await self.time.sleep(self.pause_s)
            took(stood(self.pause_s, self.requests))

    async def push(self, pace: RollingUpdate) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.engines):
                group.create_task(self.exchange(pace))

    def pushes(self, count: int = 1) -> list[float]:
        """To all of them, one behind the other: how long each took."""

        async def run() -> list[float]:
            pace = RollingUpdate(self.engines, self.share, self.loss, clock=self.time.clock, pause=self.time.until)
            took = list[float]()
            for _ in range(count):
                begun = self.time.now
                async with asyncio.TaskGroup() as group:
                    await self.time.pass_for(group.create_task(self.push(pace)))
                took.append(self.time.now - begun)
            return took

        return asyncio.run(run())


PAUSES = st.floats(0.001, 100)


@given(engines=st.integers(2, 40), loss=st.floats(0.01, 1), pause_s=PAUSES)
def test_an_update_costs_decoding_engines_no_more_than_its_loss(engines: int, loss: float, pause_s: float) -> None:
    """Unless its engines, one behind the other, need longer than that already."""
    fake_engines = FakeRollingEngines(engines, 1 / engines, loss, pause_s)
    least = max(pause_s / loss, engines * pause_s)
    most = least + stagger_interval_s(engines, pause_s, loss)  # where the one before has just ended
    assert all(least * 0.999999 <= took <= most * 1.000001 for took in fake_engines.pushes(3))


@given(engines=st.integers(1, 40), pause_s=PAUSES)
def test_engines_that_decode_nothing_do_not_wait(engines: int, pause_s: float) -> None:
    assert FakeRollingEngines(engines, 1.0, 0.05, pause_s, requests=0).pushes() == [pytest.approx(pause_s)]


@given(engines=st.integers(2, 40), pause_s=PAUSES)
def test_a_loss_of_1_does_not_spread_updates(engines: int, pause_s: float) -> None:
    at_once = max(1, engines // 2)
    assert FakeRollingEngines(engines, 0.5, 1.0, pause_s).pushes() == [pytest.approx(-(-engines // at_once) * pause_s)]


@given(pause_s=PAUSES)
def test_a_single_engine_never_waits(pause_s: float) -> None:
    assert FakeRollingEngines(1, 0.5, 0.05, pause_s).pushes(2) == [pytest.approx(pause_s)] * 2


def test_updates_of_two_engines_are_spread_over_twenty_pauses() -> None:
    fake_engines = FakeRollingEngines(2, 0.5, 0.05, pause_s=0.04)
    assert fake_engines.pushes() == [pytest.approx(0.8)]
    assert fake_engines.begun == [0.0, pytest.approx(0.76)]


async def test_an_update_slot_without_a_load_delays_no_other() -> None:
    """Without this, engines that skip a version, or have a restarting server, delay it for the others."""
    time, begun = FakeTime(), list[float]()
    pace = RollingUpdate(2, 0.5, 0.05, clock=time.clock, pause=time.until)

    async def turns() -> None:
        async with pace.update_slot() as took:
            took(stood(0.04))
        for exchanges in (False, False, True, True):
            async with pace.update_slot() as took:
                begun.append(time.now)
                if exchanges:
                    took(stood(0.04))

    async with asyncio.TaskGroup() as group:
        await time.pass_for(group.create_task(turns()))
    assert begun == [pytest.approx(at) for at in (0.76, 0.76, 0.76, 1.52)]


async def test_a_caller_that_waits_for_the_weights_skips_the_spread() -> None:
    """By the clock it would be hours."""
    pace, exchanged = RollingUpdate(2, 0.5, 1e-6), asyncio.Event()

    async def exchange() -> None:
        async with pace.update_slot() as took:
            took(
                WeightLoadReport(
                    version=WeightVersion(1), pause_ms=40.0, paused_requests=8, load_ms=0.0, prefetch_ms=0.0
                )
            )
        exchanged.set()

    await exchange()
    exchanged.clear()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        second = group.create_task(exchange())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not exchanged.is_set()
        with pace.unstaggered():
            await second
            await exchange()
