"""Runs the attempts of a standalone evaluation with bounded concurrency, each in a sandbox of its own.

Every attempt ends in a record, whatever fails in it, and stops no other.  A cancelled attempt leaves no record, and its
sandbox is removed before :func:`run_attempts` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from actors.rewards.composite import RewardFunction
from actors.rollout.grading import GradedEpisode, run_and_grade
from actors.rollout.observer import EpisodeObserver
from actors.rollout.recorder import TerminalRecorder
from actors.rollout.sandbox_terminal import SandboxTerminal, hold_terminal
from actors.rollout.terminal import EpisodeGrade
from actors.workers.episode_failure import EpisodeFailure, classify_failure
from actors.workers.settings import WorkerSpec
from launch.evaluation.results.swe_synth_samples import PATCH
from launch.evaluation.solvers.solver import NullObserver, Solver, SolverRun
from launch.evaluation.standalone.attempt_images import AttemptImages
from protocol.evaluation import AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptUsage, AttemptVerdict
from protocol.events import JsonValue
from protocol.run_directory.page_pictures import PictureWriter, pictures_path
from protocol.trajectory import EpisodeStatus, InfraFailure, Reward
from sandbox.errors import SandboxDestroyed
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider, Sandbox
from sandbox.session.child_process import collect_child_output
from sandbox.tasks.formats.swe_bugs.bug_rows import find_bug
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

OnRecord = Callable[[AttemptRecord, Mapping[str, JsonValue]], None]
"""Callback for each finished attempt and its trajectory."""
_MESSAGE_CHARS = 500
_PATCH_S, _PATCH_BYTES = 60.0, 1 << 20
_PATCH_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
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
    patch: str = ""
    """The agent's changes of the repository whose bug it was to mend; empty for none."""
    remark: str = ""

    @property
    def usage(self) -> AttemptUsage:
        return self.solver_run.usage if self.solver_run is not None else AttemptUsage()

    @property
    def trajectory(self) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {"messages": []}
        if self.solver_run is not None:
            found = self.solver_run.trajectory_json()
        return {**found, PATCH: self.patch} if self.patch else found


@dataclass(slots=True)
class _StagedSolver:
    """A solver's run and its terminal, whose playing and grading name the stage in which a failure happens."""

    run: SolverRun
    terminal: SandboxTerminal
    state: _AttemptState
    show_patch: str
    """Shell command that prints what the agent has changed; empty for none."""

    async def play(self, task: Task) -> EpisodeStatus:
        self.state.stage = AttemptStage.AGENT
        return await self.run.play(task)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        self.state.stage = AttemptStage.EVALUATE
        if self.show_patch:
            self.state.patch, self.state.remark = await _read_patch(self.terminal, self.show_patch)
        return await self.terminal.grade(last_reply)


async def _read_patch(terminal: SandboxTerminal, command: str) -> tuple[str, str]:
    """Return what ``command`` prints, if it is whole, or why there is no patch."""
    argv = ("/bin/sh", "-c", command)
    try:
        end, output = await collect_child_output(
            terminal.session, argv, env=_PATCH_ENV, limit_s=_PATCH_S, most_bytes=_PATCH_BYTES
        )
        patch = output.decode()
    except (OSError, SandboxDestroyed, UnicodeDecodeError) as error:
        return "", f"there is no patch: {error}"[:_MESSAGE_CHARS]
    if end is None:
        return "", f"there is no patch: it is longer than {_PATCH_BYTES >> 20} MiB, or took longer than {_PATCH_S:g} s"
    if end.code:
        return "", f"there is no patch: exit code {end.code}: {' '.join(patch.split())[-_MESSAGE_CHARS:]}"
    return patch, ""


async def run_attempts(
    attempts: Sequence[AttemptId],
    tasks: Mapping[str, Task],
    context: EvaluationContext,
    concurrency: int,
    on_record: OnRecord,
    *,
    console: Console,
) -> None:
    """Start attempts in order as their images are there, ``concurrency`` at a time; ``console`` gets a line for each
    image that is made."""
    images = await asyncio.to_thread(AttemptImages, attempts, tasks, context.pool.images, console)  # reads the contexts

    async def work() -> None:
        while (attempt := await images.take()) is not None:
            on_record(*await run_attempt(attempt, tasks[attempt.task], context))
            await images.finish(attempt)

    async with images.making(), asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(attempts))):
            group.create_task(work())


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
        remark=state.remark,
    )
    return record, state.trajectory


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
        with _observing(attempt, task, context) as observer:
            terminal.show_opening(observer.on_picture)
            with context.solver(task, attempt, terminal, observer) as run:
                state.solver_run, bug = run, find_bug(task)
                staged = _StagedSolver(run, terminal, state, bug.show_patch if bug is not None else "")
                ended = await run_and_grade(
                    staged.play, staged, terminal.shown_task, lambda: run.final_answer, deadlines
                )
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
    return ended.with_step_rewards((await reward.compute_reward(result)).reward)


@contextmanager
def _observing(attempt: AttemptId, task: Task, context: EvaluationContext) -> Generator[EpisodeObserver]:
    if context.terminals is None:
        yield NullObserver()
        return
    file = context.terminals / f"{attempt.uid}.cast"
    path = pictures_path(context.terminals.parent, attempt.uid)
    pictures = PictureWriter(path, context.worker.episode.picture_budget_bytes)
    with closing(TerminalRecorder(file, task.instruction, pictures, _RECORDING_BYTES)) as recorder:
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
