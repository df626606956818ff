"""Run an agent, grade its episode, and make the trajectory.

The agent's loop and a harness share both steps: :func:`run_and_grade`, then :func:`finish_episode`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from actors.engines.sampling import EpisodeSampling
from actors.rewards.composite import RewardFunction, apply_reward
from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rollout.observer import EpisodeObserver
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES, StageDeadlines, run_stage
from actors.rollout.terminal import EpisodeGrade, Grader, SandboxDestroyedByAgent
from protocol.trajectory import EpisodeStatus, RolloutRequest, Segment, TestResult, Trajectory
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
    segments: tuple[Segment, ...]
    turn_order: Sequence[int]
    """Number of each model turn in the episode, in the order of the segments."""
    engine: str
    timings_ms: Mapping[str, float]


async def run_and_grade(
    agent_run: Coroutine[None, None, EpisodeStatus],
    gradable: Grader,
    task: Task,
    last_content: Callable[[], str],
    deadlines: StageDeadlines,
) -> GradedEpisode:
    """Run the agent to its end, then grade it: by its last reply if the task has an expected answer, else by the tests.

    An agent that destroyed its sandbox fails every test.  Raises StageOverrun."""
    try:
        async with run_stage("agent", deadlines.agent):
            status = await agent_run
        async with run_stage("evaluate", deadlines.evaluate):
            grade = _grade_answer(task.answer, last_content()) if task.answer else await gradable.grade()
    except SandboxDestroyedByAgent as error:
        failed = tuple(TestResult(name, False) for name in ((ANSWER_TEST,) if task.answer else task.expected_tests))
        return GradedEpisode(EpisodeStatus.SANDBOX_DESTROYED, EpisodeGrade(failed, 0.0, False, 0.0), str(error))
    error = "" if status is EpisodeStatus.COMPLETED else f"ended by its {status.value.replace('_', ' ')}"
    return GradedEpisode(status, grade, error)


def _grade_answer(expected: str, reply: str) -> EpisodeGrade:
    right = is_right_answer(reply, expected)
    return EpisodeGrade((TestResult(ANSWER_TEST, right),), float(right), right, 0.0, score=float(right))


async def finish_episode(context: EpisodeContext, graded: GradedEpisode, record: SampledEpisode) -> Trajectory:
    """Compute the reward and return the trajectory."""
    sampled_tokens = sum(int(segment.loss_mask.sum()) for segment in record.segments)
    result = graded.to_result(context.task, record.turns, sampled_tokens)
    reward, segments = await apply_reward(context.reward, result, record.segments, record.turn_order)
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
