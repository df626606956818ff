"""If these fail, a task of several steps earns another reward than in Harbor, or goes on when it should not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sandbox.grading.canaries import CanaryVerdict
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import REWARD_TEST, GradedTest, GradingOutcome, GradingReport, judge_reports
from sandbox.grading.steps import StepsGrade, task_reward
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_grading import GradingLevel, StepsReward

PASSED, FAILED = GradingOutcome.PASSED, GradingOutcome.FAILED


def grade(rewards: Mapping[str, float], **tests: GradingOutcome) -> GradeResult:
    judged = judge_reports((), {}, [GradingReport(rewards=rewards)]).tests
    found = tuple(GradedTest(name, outcome) for name, outcome in tests.items()) or judged
    return GradeResult(found, rewards, "log", GradingLevel.LIVE, Isolation.LIVE, timed_out=False, ms=2.0)


def played(task: Task, *grades: GradeResult) -> StepsGrade:
    found = StepsGrade(task)
    for each in grades:
        assert found.next_step is not None, "it goes on although it has ended"
        found = found.with_step(each)
    return found


def stepped(*least: Mapping[str, float], reward: StepsReward = StepsReward.MEAN) -> Task:
    steps = tuple(TaskStep(f"s{number}", "do", min_rewards=dict(each)) for number, each in enumerate(least))
    return Task("t", "do", steps=steps, steps_reward=reward)


@pytest.mark.parametrize(
    ("reward", "rewards", "total", "passed"),
    [
        (StepsReward.MEAN, [{"reward": 1.0}, {"reward": 1.0}], 1.0, True),
        (StepsReward.MEAN, [{"reward": 1.0}, {"reward": 0.0}], 0.5, False),
        (StepsReward.MEAN, [{"reward": 2.0}, {"reward": 0.0}], 1.0, False),
        (StepsReward.MEAN, [{"a": 1.0, "b": 0.5}, {"a": 1.0}], 0.625, False),
        (StepsReward.FINAL, [{"reward": 0.0}, {"reward": 1.0}], 1.0, True),
        (StepsReward.FINAL, [{"reward": 1.0}, {"reward": 0.0}], 0.0, False),
    ],
)
def test_the_rewards_of_steps_become_that_of_the_task(
    reward: StepsReward, rewards: list[Mapping[str, float]], total: float, passed: bool
) -> None:
    task = stepped({}, {}, reward=reward)
    whole = played(task, *map(grade, rewards)).total
    assert (task_reward(task, whole), whole.score, whole.all_passed) == (total, total, passed)


@pytest.mark.parametrize(
    ("least", "rewards", "goes_on"),
    [
        ({"reward": 0.5}, {"reward": 0.5}, True),
        ({"reward": 0.5}, {"reward": 0.4}, False),
        ({"reward": 0.5}, {"good": 1.0}, False),
        ({"good": 0.5, "fast": 0.1}, {"good": 1.0, "fast": 0.1}, True),
        ({"good": 0.5, "fast": 0.1}, {"good": 1.0}, False),
        ({"reward": -1.0}, {}, True),
    ],
)
def test_a_step_without_the_reward_that_it_asks_for_ends_the_task(
    least: Mapping[str, float], rewards: Mapping[str, float], goes_on: bool
) -> None:
    found = played(stepped(least, {}), grade(rewards, a=FAILED if not rewards else PASSED))
    assert (found.next_step is not None) is goes_on
    assert played(stepped(least), grade({"reward": 1.0})).next_step is None, "it was the last"


def test_a_reward_that_a_test_contradicts_counts_as_nothing() -> None:
    task = stepped({}, {})
    whole = played(task, grade({"reward": 1.0}, a=PASSED, b=FAILED), grade({"reward": 1.0})).total
    assert (task_reward(task, whole), whole.all_passed) == (0.5, False)
    assert [test.name for test in whole.tests] == ["s0: a", "s0: b", f"s1: {REWARD_TEST}"]


def test_a_step_that_could_not_begin_has_failed() -> None:
    task = stepped({}, {}, {})
    found = played(task, grade({"reward": 1.0})).with_failed_start("its script exited with 3")
    assert (task_reward(task, found.total), found.total.all_passed) == (0.5, False)
    assert "its script exited with 3" in found.total.log


def test_a_task_that_is_one_step_has_the_grade_of_its_tests() -> None:
    only = grade({"reward": 0.3})
    found = played(Task("t", "do"), only)
    assert (found.next_step, found.total) == (None, only)


def test_the_worst_that_canaries_said_in_a_step_is_said_of_the_task() -> None:
    said = (CanaryVerdict.TRUE, CanaryVerdict.LIED, CanaryVerdict.SILENT)
    whole = played(stepped({}, {}, {}), *(replace(grade({"reward": 0.0}), canaries=each) for each in said)).total
    assert whole.canaries is CanaryVerdict.LIED
