"""If these fail, a fleet stops decoding for each new version, or waits for weights that would cost it nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.messages import LoadReport
from launch.pace import Pace, spread_s
from protocol.weights import Version


@dataclass
class FakeTime:
    """Passes only when everybody sleeps."""

    now: float = 0.0
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

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


@dataclass
class FakeFleet:
    """Engines that stand still for so long in each exchange, with so many requests."""

    engines: int
    share: float
    loss: float
    pause_s: float
    requests: int = 8
    time: FakeTime = field(default_factory=FakeTime)
    begun: list[float] = field(default_factory=list)

    async def exchange(self, pace: Pace) -> None:
        async with pace.turn():
            self.begun.append(self.time.now)
            await self.time.sleep(self.pause_s)
            stood_ms = self.pause_s * 1000
            pace.took(
                LoadReport(version=Version(1), pause_ms=stood_ms, stood=self.requests, load_ms=0.0, prefetch_ms=0.0)
            )

    async def push(self, pace: Pace) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.engines):
                group.create_task(self.exchange(pace))

    def pushes(self, count: int = 1) -> list[float]:
        """To all of them, one behind the other: how long each took."""

        async def run() -> list[float]:
            pace = Pace(self.engines, self.share, self.loss, clock=self.time.clock, pause=self.time.sleep)
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
def test_a_push_costs_a_decoding_fleet_no_more_than_its_loss(engines: int, loss: float, pause_s: float) -> None:
    """Unless its engines, one behind the other, need longer than that already."""
    fleet = FakeFleet(engines, 1 / engines, loss, pause_s)
    least = max(pause_s / loss, engines * pause_s)
    most = least + spread_s(engines, pause_s, loss)  # where the one before has just ended
    assert all(least * 0.999999 <= took <= most * 1.000001 for took in fleet.pushes(3))


@given(engines=st.integers(1, 40), pause_s=PAUSES)
def test_engines_that_decode_nothing_do_not_wait(engines: int, pause_s: float) -> None:
    assert FakeFleet(engines, 1.0, 0.05, pause_s, requests=0).pushes() == [pytest.approx(pause_s)]


@given(engines=st.integers(2, 40), pause_s=PAUSES)
def test_a_loss_of_1_spreads_nothing(engines: int, pause_s: float) -> None:
    at_once = max(1, engines // 2)
    assert FakeFleet(engines, 0.5, 1.0, pause_s).pushes() == [pytest.approx(-(-engines // at_once) * pause_s)]


@given(pause_s=PAUSES)
def test_a_fleet_of_one_never_waits(pause_s: float) -> None:
    assert FakeFleet(1, 0.5, 0.05, pause_s).pushes(2) == [pytest.approx(pause_s)] * 2


def test_two_engines_are_spread_over_twenty_pauses() -> None:
    fleet = FakeFleet(2, 0.5, 0.05, pause_s=0.04)
    assert fleet.pushes() == [pytest.approx(0.8)]
    assert fleet.begun == [0.0, pytest.approx(0.76)]
