import asyncio

import pytest

from taskline.retry import GaveUp, delays, with_retries


class Work:
    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Sleep:
    def __init__(self):
        self.waited = []

    async def __call__(self, seconds):
        self.waited.append(seconds)


def test_delays_grow_to_a_limit():
    assert delays(5, 1.0, 2.0, 5.0) == [1.0, 2.0, 4.0, 5.0]
    assert delays(1) == []


def test_the_default_delays():
    assert delays(4) == [0.1, 0.2, 0.4]


def test_the_first_success_counts():
    work, sleep = Work(OSError("a"), 7), Sleep()
    assert asyncio.run(with_retries(work, sleep=sleep)) == 7
    assert (work.calls, sleep.waited) == (2, [0.1])


def test_it_gives_up_after_the_last_try():
    work, sleep = Work(OSError("a"), OSError("b"), OSError("c"), 7), Sleep()
    with pytest.raises(GaveUp, match="3 times") as found:
        asyncio.run(with_retries(work, sleep=sleep))
    assert str(found.value.__cause__) == "c"
    assert (work.calls, sleep.waited) == (3, [0.1, 0.2])


def test_other_failures_are_raised_at_once():
    work = Work(KeyError("a"), 7)
    with pytest.raises(KeyError):
        asyncio.run(with_retries(work, sleep=Sleep()))
    assert work.calls == 1


def test_one_try_never_waits():
    work, sleep = Work(TimeoutError()), Sleep()
    with pytest.raises(GaveUp):
        asyncio.run(with_retries(work, tries=1, sleep=sleep))
    assert sleep.waited == []
