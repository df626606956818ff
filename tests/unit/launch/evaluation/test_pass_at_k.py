"""If these fail, a model's score is another than the attempts say."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.evaluation.pass_at_k import TaskTally, bootstrap_interval, estimate_pass_at_k, pass_at_k, reported_ks


@st.composite
def cases(draw: st.DrawFn) -> tuple[TaskTally, int]:
    attempts = draw(st.integers(1, 9))
    return TaskTally(attempts, draw(st.integers(0, attempts))), draw(st.integers(1, attempts))


@given(cases())
def test_it_is_the_share_of_all_choices_that_hold_a_pass(case: tuple[TaskTally, int]) -> None:
    tally, k = case
    passed = [number < tally.passed for number in range(tally.attempts)]
    choices = list(combinations(passed, k))
    assert pass_at_k(tally, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@given(cases())
def test_it_never_falls_with_more_passes_or_a_greater_k(case: tuple[TaskTally, int]) -> None:
    (attempts, passed), k = case
    here = pass_at_k(TaskTally(attempts, passed), k)
    assert 0 <= here <= 1
    assert passed == attempts or pass_at_k(TaskTally(attempts, passed + 1), k) >= here
    assert k == attempts or pass_at_k(TaskTally(attempts, passed), k + 1) >= here


def test_a_k_beyond_the_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@3 of 2 attempts"):
        pass_at_k(TaskTally(2, 1), 3)


@pytest.mark.parametrize(("attempts", "ks"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (0, [])])
def test_every_power_of_two_and_the_whole(attempts: int, ks: list[int]) -> None:
    assert reported_ks(attempts) == ks


def test_tasks_with_too_few_attempts_are_left_out_and_counted_so() -> None:
    """Infrastructure took an attempt: its task has no pass@2, and the others' is no worse for it."""
    found = estimate_pass_at_k([TaskTally(2, 1), TaskTally(1, 0)], 2, seed=1)
    assert found is not None
    assert (found.value, found.tasks) == (1.0, 1)
    assert estimate_pass_at_k([TaskTally(1, 1)], 2, seed=1) is None


def test_the_interval_is_the_seed_s_and_holds_the_mean() -> None:
    values = [float(number % 3 == 0) for number in range(60)]
    low, high = bootstrap_interval(values, 7)
    assert (low, high) == bootstrap_interval(values, 7)
    assert low < sum(values) / len(values) < high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Nineteen times of twenty: attempts at a task that always ends alike are one draw, not eight."""
    draws, hits = random.Random(3), 0
    for trial in range(100):
        of_tasks = [TaskTally(8, 8 * (draws.random() < 0.4)) for _ in range(50)]
        found = estimate_pass_at_k(of_tasks, 1, trial)
        assert found is not None
        hits += found.low <= 0.4 <= found.high
    assert hits >= 86
