"""Runs the attempts of an evaluation, some at once, each in a sandbox of its own.

An attempt ends in a record, whatever happens in it: none stops the others.  One that is cancelled leaves none, and its
sandbox goes before :func:`run_attempts` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from actors.rewards.composite import RewardFunction
from actors.rollout.grading import GradedEpisode, run_and_grade
from actors.rollout.observer import EpisodeObserver
from actors.rollout.recorder import TerminalRecorder
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.stages import StageDeadlines
from actors.rollout.terminal import EpisodeGrade, Gradable
from actors.workers.settings import WorkerSpec
from launch.evaluation.attempts import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptUsage
from launch.evaluation.solvers.solver import NullObserver, Solver, SolverRun
from launch.trajectory_reader.verdict import AttemptVerdict
from protocol.errors import iterate_leaf_errors
from protocol.events import JsonValue
from protocol.trajectory import Reward
from sandbox.errors import SandboxStartError
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider, LocalSandbox
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

OnRecord = Callable[[AttemptRecord, Mapping[str, JsonValue]], None]
"""Told of each attempt as it ends, with its trajectory."""
_MESSAGE_CHARS = 500
_RECORDING_BYTES = 400_000
"""Of one attempt's terminal; after that only what the agent says and types, up to a tenth more."""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Where and how attempts are run."""

    pool: SandboxPool
    settings: WorkerSpec
    tools: Toolset
    solver: Solver
    rewarding: RewardFunction
    terminals: Path | None = None
    """Where terminals are recorded; None for nowhere."""


@dataclass(slots=True)
class _AttemptState:
    """How far one attempt has come."""

    stage: AttemptStage = AttemptStage.RESET
    solver_run: SolverRun | None = None
    verdict: AttemptVerdict | None = None

    @property
    def effort(self) -> AttemptUsage:
        return self.solver_run.effort if self.solver_run is not None else AttemptUsage()


@dataclass(slots=True)
class _StagedGrading:
    """Where it is graded: from then on what goes wrong is the grading's."""

    terminal: Gradable
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
    """Run them in their order, ``at_once`` of them at a time."""
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
    """One attempt from its sandbox to its end.  Raises nothing for what goes wrong in it."""
    course, begun, failure = _AttemptState(), time.monotonic(), None
    try:
        async with asyncio.timeout(context.settings.settings.episode_deadline_s):
            await _run_stages(attempt, task, context, course)
    except Exception as error:  # noqa: BLE001  # the boundary: what goes wrong costs one attempt, is named, and is counted
        failure = _failure(course.stage, error)
    record = AttemptRecord(
        attempt.task,
        attempt.number,
        task.family,
        time.monotonic() - begun,
        course.verdict,
        failure,
        course.effort,
    )
    return record, course.solver_run.trajectory_json() if course.solver_run is not None else {"messages": []}


def _failure(stage: AttemptStage, error: Exception) -> AttemptError:
    first = next(iterate_leaf_errors(error))
    message = " ".join(str(first).split()) or "it was not over in its time"
    return AttemptError(stage, type(first).__name__, message[:_MESSAGE_CHARS])


async def _run_stages(attempt: AttemptId, task: Task, ground: EvaluationContext, course: _AttemptState) -> None:
    settings = ground.settings
    deadlines = StageDeadlines.for_episode(
        asyncio.get_running_loop().time(),
        settings.settings.episode_deadline_s,
        evaluate_s=settings.grade_timeout_s,
        after_s=settings.settings.cleanup_timeout_s,
    )
    async with _sandbox(task, ground) as sandbox:
        course.stage = AttemptStage.AGENT
        terminal = SandboxTerminal(
            sandbox,
            task,
            settings.command_timeout_s,
            settings.grade_timeout_s,
            settings.episode.observation_chars,
            tools=ground.tools,
        )
        with _observing(attempt, task, ground.terminals) as observer:
            playing = course.solver_run = ground.solver(task, attempt, terminal, observer)
            place = _StagedGrading(terminal, course)
            ended = await run_and_grade(playing.run(), place, task, lambda: playing.final_answer, deadlines)
            course.stage = AttemptStage.EVALUATE
            reward = await _reward(ended, task, playing, ground.rewarding)
            observer.on_grade(ended.grade, reward)
        graded = ended.grade
        course.verdict = AttemptVerdict(
            graded.all_passed, reward.total, graded.pass_ratio, ended.status, reward.parts, graded.tests
        )
        course.stage = AttemptStage.CLEAN_UP


async def _reward(ended: GradedEpisode, task: Task, playing: SolverRun, rewarding: RewardFunction) -> Reward:
    played = ended.to_result(task, playing.turns, playing.effort.completion_tokens)
    return (await rewarding.compute_reward(played)).reward


@contextmanager
def _observing(attempt: AttemptId, task: Task, terminals: Path | None) -> Generator[EpisodeObserver]:
    if terminals is None:
        yield NullObserver()
        return
    file = terminals / f"{attempt.uid}.cast"
    with closing(TerminalRecorder(file, task.instruction, _RECORDING_BYTES)) as recorder:
        yield recorder


@asynccontextmanager
async def _sandbox(task: Task, ground: EvaluationContext) -> AsyncGenerator[LocalSandbox]:
    settings = ground.settings.settings
    try:
        async with asyncio.timeout(settings.acquire_timeout_s):
            sandbox = await LocalProvider(ground.pool).open(task, settings.episode_deadline_s)
    except TimeoutError as error:
        raise SandboxStartError(f"no sandbox within {settings.acquire_timeout_s:g} s") from error
    try:
        yield sandbox
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            await _close_sandbox(sandbox, ground)
        raise
    await _close_sandbox(sandbox, ground)


async def _close_sandbox(sandbox: LocalSandbox, ground: EvaluationContext) -> None:
    async with asyncio.timeout(ground.settings.settings.cleanup_timeout_s):
        await sandbox.close()


@dataclass(slots=True)
class AttemptProgress:
    """Of the attempts of one command, as they end."""

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
