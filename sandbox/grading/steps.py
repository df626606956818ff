"""Grades a task of several steps, as Harbor does: each step beside what the agent leaves for the next one. Pure.

After each step that asks for a reward and does not get it, none follows. The rewards of a task are, by name, the means
over the steps that were played, or those of the last one (:class:`~sandbox.tasks.task_grading.StepsReward`). A step
that cannot begin because of what the agent left has failed, and so has one whose tests prove nothing: both count as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox.grading.canaries import CanaryVerdict
from sandbox.grading.grade_result import STEP_SEPARATOR, GradeResult
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import REWARD_TEST, GradedTest, GradingOutcome
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel, StepsReward


@dataclass(frozen=True, slots=True)
class StepsGrade:
    """The grades of the steps of ``task`` that were played; a task that is one step itself has one."""

    task: Task
    played: tuple[GradeResult, ...] = ()

    def with_step(self, grade: GradeResult) -> StepsGrade:
        """Return the grades with that of the next step."""
        return replace(self, played=(*self.played, grade))

    def with_failed_start(self, why: str) -> StepsGrade:
        """Return the grades with that of a step which could not begin."""
        test = GradedTest(REWARD_TEST, GradingOutcome.FAILED)
        failed = GradeResult((test,), {"reward": 0.0}, why, GradingLevel.LIVE, Isolation.LIVE, False, 0.0)
        return self.with_step(failed)

    @property
    def next_step(self) -> Task | None:
        """The step that follows; None if there is none, or the last one did not get the reward that it asks for."""
        steps = self.task.in_steps
        if len(self.played) == len(steps) or (self.played and not self._is_enough(steps[len(self.played) - 1])):
            return None
        return steps[len(self.played)]

    def _is_enough(self, step: Task) -> bool:
        rewards = _step_rewards(step, self.played[-1])
        wanted = (pair for each in step.steps for pair in each.min_rewards.items())
        return all(rewards.get(name, -math.inf) >= least for name, least in wanted)

    @property
    def step_rewards(self) -> dict[str, float]:
        """Reward of each step that was played, by name; empty for a task that is one step itself."""
        played = zip(self.task.in_steps, self.played, strict=False)
        return {step.step_name: task_reward(step, grade) for step, grade in played if step.steps}

    @property
    def total(self) -> GradeResult:
        """The grade of the whole task."""
        if not self.task.steps:
            (only,) = self.played
            return only
        counted = list(zip(self.task.in_steps, self.played, strict=False))
        if self.task.steps_reward is StepsReward.FINAL:
            counted = counted[-1:]
        return GradeResult(
            tuple(
                replace(test, name=f"{step.step_name}{STEP_SEPARATOR}{test.name}")
                for step, grade in counted
                for test in grade.tests
            ),
            _mean([_step_rewards(step, grade) for step, grade in counted]),
            "\n".join(f"[{step.name}]\n{grade.log}" for step, grade in zip(self.task.steps, self.played, strict=False)),
            self.played[-1].level,
            max((grade.isolation for grade in self.played), key=list(Isolation).index),
            any(grade.timed_out for grade in self.played),
            sum(grade.ms for grade in self.played),
            tuple(found for grade in self.played for found in grade.suspicions),
            max((grade.canaries for grade in self.played), key=list(CanaryVerdict).index),
        )


def task_reward(task: Task, graded: GradeResult) -> float:
    """Return the score by the task's own rule.

    The rule is its reward file if it has one and no test contradicts it, else its weights; otherwise only a full pass
    counts.
    """
    if graded.reward is not None and (graded.reward < 1 or graded.all_passed or graded.rewards_only):
        return graded.reward
    return graded.score if task.weights else float(graded.all_passed)


def _step_rewards(step: Task, graded: GradeResult) -> Mapping[str, float]:
    value = task_reward(step, graded)
    return graded.rewards if value == graded.reward else {"reward": value}


def _mean(rewards: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in rewards for name in each)
    return {name: sum(each.get(name, 0.0) for each in rewards) / len(rewards) for name in names}
