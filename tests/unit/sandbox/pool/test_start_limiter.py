"""If these fail, starts pile up on a slow daemon, or a fast one idles: every episode waits for its sandbox."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.pool.start_limiter import StartConcurrencyLimit, StartLimiter


class FakeMachine:
    """Starts up to ``cores`` containers at once in ``alone_s`` each; more of them share the cores."""

    def __init__(self, cores: int, alone_s: float) -> None:
        self.cores, self.alone_s = cores, alone_s

    def start_s(self, at_once: int) -> float:
        return self.alone_s * max(1.0, at_once / self.cores)


def settle(pace: StartConcurrencyLimit, machine: FakeMachine, starts: int = 600) -> int:
    for _ in range(starts):
        pace.record_start(machine.start_s(pace.limit), pace.limit)
    return pace.limit


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_the_limit_settles_where_the_machine_is_busy_but_not_overloaded(cores: int):
    limit = settle(StartConcurrencyLimit(1, 64), FakeMachine(cores, 0.15))
    assert cores * 0.7 <= limit <= 2 * cores


def test_probing_for_a_better_limit_costs_a_busy_machine_little():
    pace, machine = StartConcurrencyLimit(2, 2), FakeMachine(2, 0.15)
    took = 0.0
    for _ in range(1000):
        seconds = machine.start_s(pace.limit)
        took += seconds / pace.limit
        pace.record_start(seconds, pace.limit)
    assert took < 1.05 * 1000 * machine.alone_s / machine.cores


def test_a_limit_without_a_range_stays():
    pace = StartConcurrencyLimit(2, 2, 2)
    for _ in range(100):
        pace.record_start(0.1, pace.limit)
        assert pace.limit == 2
        pace.record_timeout()
        assert pace.limit == 2


def test_a_limit_that_starts_too_high_comes_down():
    assert settle(StartConcurrencyLimit(64, 64), FakeMachine(2, 0.15)) < 16


def test_the_scale_of_time_does_not_matter():
    assert settle(StartConcurrencyLimit(2, 64), FakeMachine(4, 0.015)) == settle(
        StartConcurrencyLimit(2, 64), FakeMachine(4, 15.0)
    )


def test_the_limit_adapts_to_a_machine_that_became_slower():
    pace = StartConcurrencyLimit(2, 64)
    settle(pace, FakeMachine(4, 0.1))
    assert 2 <= settle(pace, FakeMachine(4, 1.0)) <= 8


def test_timeouts_lower_the_limit_to_one_at_the_least():
    pace = StartConcurrencyLimit(16, 64)
    for _ in range(200):
        pace.record_timeout()
    assert pace.limit == 1
    assert pace.estimate_wait_s(3) > 0


def test_starts_not_bound_by_the_limit_do_not_change_it():
    pace = StartConcurrencyLimit(4, 64)
    for seconds in (0.1, 5.0, 0.1, 5.0) * 20:
        pace.record_start(seconds, at_once=1)
    assert pace.limit == 4
    assert pace.estimate_wait_s(8) == pytest.approx(2 * pace.start_s)


async def test_the_proxy_holds_starts_to_the_limit_and_serves_waiters_before_fillers():
    limiter = StartLimiter(StartConcurrencyLimit(1, 1))
    order: list[str] = []
    most = 0

    async def start(name: str, *, urgent: bool) -> None:
        nonlocal most
        async with limiter.start_slot(urgent=urgent):
            most = max(most, limiter.under_way)
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for name, urgent in (("a", True), ("fill", False), ("b", True), ("c", True)):
            group.create_task(start(name, urgent=urgent))
    assert order == ["a", "b", "c", "fill"]
    assert most == 1
    assert limiter.under_way == limiter.queued == 0


async def test_a_cancelled_waiter_does_not_use_up_a_turn():
    limiter = StartLimiter(StartConcurrencyLimit(1, 1))
    async with asyncio.TaskGroup() as group, limiter.start_slot():

        async def wait() -> None:
            async with limiter.start_slot():
                pass

        waiter = group.create_task(wait())
        await asyncio.sleep(0)
        assert limiter.queued == 1
        waiter.cancel()
    async with asyncio.timeout(5), limiter.start_slot():
        assert limiter.under_way == 1


async def test_a_start_that_times_out_lowers_the_limit():
    limiter = StartLimiter(StartConcurrencyLimit(4, 8))
    for _ in range(10):
        with pytest.raises(TimeoutError):
            async with limiter.start_slot():
                raise TimeoutError
    assert limiter.concurrency_limit.limit < 4
