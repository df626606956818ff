"""If these fail, a score is not what the attempts say, or its error bar is too small."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.evaluation.scores import (
    TaskTally,
    bootstrap_interval,
    compare_attempts,
    drop_held_out_families,
    estimate_pass_at_k,
    family_table,
    pass_at_k,
    reported_ks,
    score_attempts,
)
from tests.support.runs.attempts import make_attempt

BEFORE = [
    make_attempt("a", passed=True),
    make_attempt("a", passed=False),
    make_attempt("b", passed=False),
    make_attempt("b", passed=False),
    make_attempt("a", passed=True, greedy=True),
]
AFTER = [
    make_attempt("a", passed=True),
    make_attempt("a", passed=True),
    make_attempt("b", passed=True),
    make_attempt("b", passed=False),
    make_attempt("a", passed=True, greedy=True),
]


def test_pass_at_1_is_the_mean_of_task_means_with_the_standard_error_over_tasks() -> None:
    result = score_attempts(BEFORE)
    assert (result.pass_at_1, result.n, result.tasks) == (0.25, 4, 2)
    assert result.stderr == pytest.approx(math.sqrt(((0.5 - 0.25) ** 2 + 0.25**2) / 1 / 2))


def test_greedy_attempts_are_scored_separately() -> None:
    assert score_attempts(BEFORE, greedy=True).pass_at_1 == 1.0
    assert score_attempts(BEFORE, greedy=True).n == 1


def test_a_difference_is_paired_by_task() -> None:
    change = compare_attempts(BEFORE, AFTER)
    assert change.difference == 0.5
    assert change.stderr == 0.0
    assert change.ci95 == (0.5, 0.5)


def test_a_single_task_has_no_standard_error() -> None:
    one = [attempt for attempt in BEFORE if attempt.task == BEFORE[0].task]
    assert score_attempts(one).stderr is None
    assert compare_attempts(one, one).stderr is None
    assert compare_attempts(one, one).ci95 is None


def test_the_held_out_family_is_left_out_of_the_headline_and_listed_in_the_table() -> None:
    attempts = [*BEFORE, make_attempt("z", passed=True, family="held")]
    assert len(drop_held_out_families(attempts, {"held"})) == len(BEFORE)
    table = family_table({"before": attempts, "after": attempts}, {"held"})
    assert table["held"]["held_out"] is True
    assert table["f"]["difference"] == 0.0


# -- pass@k ----------------------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[TaskTally, int]:
    attempts = draw(st.integers(1, 9))
    return TaskTally(attempts, draw(st.integers(0, attempts))), draw(st.integers(1, attempts))


@given(cases())
def test_pass_at_k_is_the_share_of_choices_of_k_attempts_with_a_pass(case: tuple[TaskTally, int]) -> None:
    tally, k = case
    passed = [number < tally.passed for number in range(tally.attempts)]
    choices = list(combinations(passed, k))
    assert pass_at_k(tally, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@given(cases())
def test_pass_at_k_never_falls_with_more_passes_or_a_greater_k(case: tuple[TaskTally, int]) -> None:
    (attempts, passed), k = case
    here = pass_at_k(TaskTally(attempts, passed), k)
    assert 0 <= here <= 1
    assert passed == attempts or pass_at_k(TaskTally(attempts, passed + 1), k) >= here
    assert k == attempts or pass_at_k(TaskTally(attempts, passed), k + 1) >= here


def test_a_k_beyond_the_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@3 of 2 attempts"):
        pass_at_k(TaskTally(2, 1), 3)


@pytest.mark.parametrize(("attempts", "ks"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (0, [])])
def test_pass_at_k_is_reported_for_every_power_of_two_and_for_all_attempts(attempts: int, ks: list[int]) -> None:
    assert reported_ks(attempts) == ks


def test_tasks_with_too_few_attempts_are_left_out_of_value_and_count() -> None:
    """Infrastructure took an attempt: its task has no pass@2, and the others' is no worse for it."""
    found = estimate_pass_at_k([TaskTally(2, 1), TaskTally(1, 0)], 2, seed=1)
    assert found is not None
    assert (found.value, found.tasks) == (1.0, 1)
    assert estimate_pass_at_k([TaskTally(1, 1)], 2, seed=1) is None


def test_the_bootstrap_interval_is_reproducible_and_contains_the_mean() -> None:
    values = [float(number % 3 == 0) for number in range(60)]
    low, high = bootstrap_interval(values, 7)
    assert (low, high) == bootstrap_interval(values, 7)
    assert low < sum(values) / len(values) < high


def test_the_interval_contains_the_true_value_about_as_often_as_it_claims() -> None:
    """Nineteen times of twenty: attempts at a task that always ends alike are one draw, not eight."""
    draws, hits = random.Random(3), 0
    for trial in range(100):
        of_tasks = [TaskTally(8, 8 * (draws.random() < 0.4)) for _ in range(50)]
        found = estimate_pass_at_k(of_tasks, 1, trial)
        assert found is not None
        hits += found.low <= 0.4 <= found.high
    assert hits >= 86
