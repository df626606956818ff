"""If these fail, the proof of a run is wrong: a rise that is none, or an error bar that is too small."""

from __future__ import annotations

import math

import pytest

from actors.scheduler.evaluation import EvaluationAttempt
from launch.evaluation.scores import compare_attempts, drop_held_out_families, family_table, score_attempts
from protocol.trajectory import EpisodeStatus


def attempt(task: str, passed: bool, *, greedy: bool = False, family: str = "f") -> EvaluationAttempt:
    return EvaluationAttempt(task, family, greedy, passed, float(passed), EpisodeStatus.COMPLETED, 10)


BEFORE = [
    attempt("a", True),
    attempt("a", False),
    attempt("b", False),
    attempt("b", False),
    attempt("a", True, greedy=True),
]
AFTER = [
    attempt("a", True),
    attempt("a", True),
    attempt("b", True),
    attempt("b", False),
    attempt("a", True, greedy=True),
]


def test_pass_at_1_is_the_mean_of_task_means_and_its_error_that_of_tasks() -> None:
    result = score_attempts(BEFORE)
    assert (result.pass_at_1, result.n, result.tasks) == (0.25, 4, 2)
    assert result.stderr == pytest.approx(math.sqrt(((0.5 - 0.25) ** 2 + 0.25**2) / 1 / 2))


def test_greedy_attempts_are_apart() -> None:
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


def test_the_held_out_family_is_left_out_of_the_headline_and_stands_in_the_table() -> None:
    attempts = [*BEFORE, attempt("z", True, family="held")]
    assert len(drop_held_out_families(attempts, {"held"})) == len(BEFORE)
    table = family_table({"before": attempts, "after": attempts}, {"held"})
    assert table["held"]["held_out"] is True
    assert table["f"]["difference"] == 0.0
