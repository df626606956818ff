"""Runs the attempts of a standalone evaluation with bounded concurrency, each in a sandbox of its own.

Every attempt ends in a record, whatever fails in it, and stops no other.  A cancelled attempt leaves no record, and its
sandbox is removed before :func:`run_attempts` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.rewards.composite import RewardFunction
from actors.rollout.grading import GradedEpisode, run_and_grade
from actors.rollout.observer import EpisodeObserver
from actors.rollout.recorder import TerminalRecorder
from actors.rollout.sandbox_terminal import hold_terminal
from actors.rollout.terminal import EpisodeGrade, Grader
from actors.workers.episode_failure import EpisodeFailure, classify_failure
from actors.workers.settings import WorkerSpec
from launch.evaluation.solvers.solver import NullObserver, Solver, SolverRun
from protocol.evaluation import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptUsage, AttemptVerdict
from protocol.events import JsonValue
from protocol.trajectory import InfraFailure, Reward
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider, Sandbox
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

OnRecord = Callable[[AttemptRecord, Mapping[str, JsonValue]], None]
"""Callback for each finished attempt and its trajectory."""
_MESSAGE_CHARS = 500
_RECORDING_BYTES = 400_000
"""Size of a terminal recording beyond which only replies and commands are recorded, up to a tenth more."""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Objects that attempts share: the sandbox pool, settings, solver and reward."""

    pool: SandboxPool
    worker: WorkerSpec
    tools: Toolset
    solver: Solver
    reward: RewardFunction
    greedy: bool = False
    terminals: Path | None = None
    """Folder of terminal recordings; None records none."""


@dataclass(slots=True)
class _AttemptState:
    """Progress of one attempt."""

    stage: AttemptStage = AttemptStage.RESET
    solver_run: SolverRun | None = None
    verdict: AttemptVerdict | None = None
    slow_cleanup: AttemptError | None = None

    @property
    def usage(self) -> AttemptUsage:
        return self.solver_run.usage if self.solver_run is not None else AttemptUsage()


@dataclass(slots=True)
class _StagedGrading:
    """A terminal whose grading starts the evaluate stage, so that later failures count as grading failures."""

    terminal: Grader
    state: _AttemptState

    async def grade(self) -> EpisodeGrade:
        self.state.stage = AttemptStage.EVALUATE
        return await self.terminal.grade()


async def run_attempts(
    attempts: Sequence[AttemptId],
    tasks: Mapping[str, Task],
    context: EvaluationContext,
    concurrency: int,
    on_record: OnRecord,
) -> None:
    """Start attempts in order, ``concurrency`` at a time."""
    waiting = iter(attempts)

    async def work(waiting: Iterator[AttemptId]) -> None:
        for attempt in waiting:
            on_record(*await run_attempt(attempt, tasks[attempt.task], context))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(attempts))):
            group.create_task(work(waiting))


async def run_attempt(
    attempt: AttemptId, task: Task, context: EvaluationContext
) -> tuple[AttemptRecord, Mapping[str, JsonValue]]:
    """Run one attempt; return its record and trajectory.  A failure becomes part of the record."""
    state, begun, failure = _AttemptState(), time.monotonic(), None
    try:
        async with asyncio.timeout(context.worker.limits.episode_deadline_s):
            await _run_stages(attempt, task, context, state)
        failure = state.slow_cleanup
    except Exception as error:  # noqa: BLE001  the boundary: a failure costs one attempt, is named, and is counted
        failure = _to_error(state.stage, classify_failure(error, context.worker.limits.episode_deadline_s))
    record = AttemptRecord(
        attempt.task,
        attempt.number,
        task.family,
        time.monotonic() - begun,
        state.verdict,
        failure,
        state.usage,
        greedy=context.greedy,
        recording=attempt.uid if context.terminals is not None else "",
    )
    return record, state.solver_run.trajectory_json() if state.solver_run is not None else {"messages": []}


def _to_error(stage: AttemptStage, failed: EpisodeFailure) -> AttemptError:
    return AttemptError(stage, failed.failure, " ".join(failed.detail.split())[:_MESSAGE_CHARS])


async def _run_stages(attempt: AttemptId, task: Task, context: EvaluationContext, state: _AttemptState) -> None:
    worker = context.worker
    deadlines = worker.stage_deadlines(asyncio.get_running_loop().time())

    def report_slow_cleanup(_: Sandbox) -> None:
        late = f"the sandbox was not removed within {worker.limits.cleanup_timeout_s:g} s"
        state.slow_cleanup = AttemptError(AttemptStage.CLEAN_UP, InfraFailure.DEADLINE, late)

    opening = LocalProvider(context.pool).open(task, worker.limits.episode_deadline_s)
    async with hold_terminal(
        opening, task, worker.terminal_limits, context.tools, on_slow_cleanup=report_slow_cleanup
    ) as terminal:
        state.stage = AttemptStage.AGENT
        with _observing(attempt, task, context.terminals) as observer:
            run = state.solver_run = context.solver(task, attempt, terminal, observer)
            grading = _StagedGrading(terminal, state)
            ended = await run_and_grade(run.run(), grading, task, lambda: run.final_answer, deadlines)
            state.stage = AttemptStage.EVALUATE
            reward = await _reward(ended, task, run, context.reward)
            observer.on_grade(ended.grade, reward)
        graded = ended.grade
        state.verdict = AttemptVerdict(
            graded.all_passed, reward.total, graded.pass_ratio, ended.status, reward.parts, graded.tests
        )
        state.stage = AttemptStage.CLEAN_UP


async def _reward(ended: GradedEpisode, task: Task, run: SolverRun, reward: RewardFunction) -> Reward:
    result = ended.to_result(task, run.turns, run.usage.completion_tokens)
    return (await reward.compute_reward(result)).reward


@contextmanager
def _observing(attempt: AttemptId, task: Task, terminals: Path | None) -> Generator[EpisodeObserver]:
    if terminals is None:
        yield NullObserver()
        return
    file = terminals / f"{attempt.uid}.cast"
    with closing(TerminalRecorder(file, task.instruction, _RECORDING_BYTES)) as recorder:
        yield recorder


@dataclass(slots=True)
class AttemptProgress:
    """Counts of the attempts of one command that have ended."""

    total: int
    done: int = 0
    passed: int = 0
    errors: int = 0

    def add_record(self, record: AttemptRecord) -> None:
        self.done += 1
        self.passed += record.verdict is not None and record.verdict.passed
        self.errors += record.verdict is None

    def line(self) -> str:
        graded = self.done - self.errors
        rate = f"{self.passed / graded:.1%}" if graded else "-"
        errors = f" · {self.errors} errors" if self.errors else ""
        return f"{self.done} of {self.total} attempts · {self.passed} passed ({rate}){errors}"
