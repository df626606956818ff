"""Run an agent, grade its episode, and make the trajectory.

The agent's loop and a harness share both steps: :func:`run_and_grade`, then :func:`finish_episode`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from actors.engines.sampling import EpisodeSampling
from actors.rewards.composite import RewardFunction, apply_reward
from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rollout.observer import EpisodeObserver
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES, StageDeadlines, run_stage
from actors.rollout.terminal import EpisodeGrade, Grader, SandboxDestroyedByAgent
from protocol.trajectory import EpisodeStatus, Reward, RolloutRequest, Segment, TestResult, Trajectory
from sandbox.grading.math_answer import ANSWER_TEST, is_right_answer
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """Everything one attempt at a request needs except its agent, policy and sandbox."""

    request: RolloutRequest
    task: Task
    settings: EpisodeSettings
    sampling: EpisodeSampling
    reward: RewardFunction
    observer: EpisodeObserver
    deadlines: StageDeadlines = NO_DEADLINES


class GradedEpisode(NamedTuple):
    """The status and the grade of an episode."""

    status: EpisodeStatus
    grade: EpisodeGrade
    error: str
    """Reason, in one line, that the status is not ``completed``."""

    def with_step_rewards(self, reward: Reward) -> Reward:
        """Return ``reward`` with that of each step among its parts, which are not added to the total."""
        return replace(
            reward, parts=reward.parts | {f"step_{name}": value for name, value in self.grade.step_rewards.items()}
        )

    def to_result(self, task: Task, turns: Sequence[ModelTurn], sampled_tokens: int) -> EpisodeResult:
        """Return the episode as reward functions see it."""
        grade = self.grade
        return EpisodeResult(
            task.instruction,
            self.status,
            grade.tests,
            grade.pass_ratio,
            grade.all_passed,
            grade.score,
            tuple(turns),
            sampled_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledEpisode:
    """Everything that was sampled in an episode."""

    turns: Sequence[ModelTurn]
    """Turns of the agent's work."""
    segments: tuple[Segment, ...]
    turn_order: Sequence[int]
    """Number of each of ``turns``, in the order of the segments."""
    engine: str
    timings_ms: Mapping[str, float]


async def run_and_grade(
    play: Callable[[Task], Coroutine[None, None, EpisodeStatus]],
    gradable: Grader,
    task: Task,
    last_content: Callable[[], str],
    deadlines: StageDeadlines,
) -> GradedEpisode:
    """Let the agent play each step of its task to its end, then grade it: by its last reply if the task has an expected
    answer, else by the tests.  The status is that of the last step.

    An agent that destroyed its sandbox fails every test.  Raises StageOverrun."""
    status, grade = EpisodeStatus.COMPLETED, EpisodeGrade((), 0.0, False, 0.0)
    try:
        for step in task.in_steps:
            async with run_stage("agent", deadlines.agent):
                status = await play(step)
            async with run_stage("evaluate", deadlines.evaluate):
                grade = await (
                    _grade_answer(task.answer, last_content()) if task.answer else gradable.grade(last_content())
                )
            if not grade.goes_on:
                break
    except SandboxDestroyedByAgent as error:
        names = [name for step in task.in_steps for name in step.expected_tests]
        failed = tuple(TestResult(name, False) for name in ((ANSWER_TEST,) if task.answer else names))
        return GradedEpisode(EpisodeStatus.SANDBOX_DESTROYED, EpisodeGrade(failed, 0.0, False, 0.0), str(error))
    error = "" if status is EpisodeStatus.COMPLETED else f"ended by its {status.value.replace('_', ' ')}"
    return GradedEpisode(status, grade, error)


async def _grade_answer(expected: str, reply: str) -> EpisodeGrade:
    right = await asyncio.to_thread(is_right_answer, reply, expected)
    return EpisodeGrade((TestResult(ANSWER_TEST, right),), float(right), right, 0.0, score=float(right))


async def finish_episode(context: EpisodeContext, graded: GradedEpisode, record: SampledEpisode) -> Trajectory:
    """Compute the reward and return the trajectory."""
    sampled_tokens = sum(int(segment.loss_mask.sum()) for segment in record.segments)
    result = graded.to_result(context.task, record.turns, sampled_tokens)
    reward, segments = await apply_reward(context.reward, result, record.segments, record.turn_order)
    reward = graded.with_step_rewards(reward)
    context.observer.on_grade(graded.grade, reward)
    return Trajectory(
        context.request,
        graded.status,
        reward,
        segments,
        tests=graded.grade.tests,
        engine=record.engine,
        timings_ms={**record.timings_ms, "grade": graded.grade.ms},
        error=graded.error,
    )
