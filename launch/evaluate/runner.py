"""Runs the attempts of an evaluation, some at once, each in a sandbox of its own.

An attempt ends in a record, whatever happens in it: none stops the others.  One that is cancelled leaves none, and its
sandbox goes before :func:`run_attempts` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from actors.episode import Ended, Gradable, Graded, Observer, until_graded
from actors.recorder import TerminalRecorder
from actors.rewards.rewarding import Rewarding
from actors.stages import Deadlines
from actors.terminal import SandboxTerminal
from actors.worker import WorkerSettings
from launch.evaluate.attempts import AttemptId, Effort, Failure, Record, Stage, Verdict
from launch.evaluate.players import Attempting, Player, Unobserved
from protocol.errors import leaves
from protocol.events import Json
from protocol.trajectory import Reward
from sandbox.errors import SandboxStartError
from sandbox.pool import SandboxPool
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import Toolset

OnRecord = Callable[[Record, Mapping[str, Json]], None]
"""Told of each attempt as it ends, with its trajectory."""
_MESSAGE_CHARS = 500
_RECORDING_BYTES = 400_000
"""Of one attempt's terminal; after that only what the agent says and types, up to a tenth more."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where and how attempts are run."""

    pool: SandboxPool
    settings: WorkerSettings
    tools: Toolset
    player: Player
    rewarding: Rewarding
    terminals: Path | None = None
    """Where terminals are recorded; None for nowhere."""


@dataclass(slots=True)
class _Course:
    """How far one attempt has come."""

    stage: Stage = Stage.RESET
    attempting: Attempting | None = None
    verdict: Verdict | None = None

    @property
    def effort(self) -> Effort:
        return self.attempting.effort if self.attempting is not None else Effort()


@dataclass(slots=True)
class _Place:
    """Where it is graded: from then on what goes wrong is the grading's."""

    terminal: Gradable
    course: _Course

    async def grade(self) -> Graded:
        self.course.stage = Stage.EVALUATE
        return await self.terminal.grade()


async def run_attempts(
    attempts: Sequence[AttemptId], tasks: Mapping[str, Task], ground: Ground, at_once: int, on_record: OnRecord
) -> None:
    """Run them in their order, ``at_once`` of them at a time."""
    waiting = iter(attempts)

    async def work(waiting: Iterator[AttemptId]) -> None:
        for attempt in waiting:
            on_record(*await attempted(attempt, tasks[attempt.task], ground))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(attempts))):
            group.create_task(work(waiting))


async def attempted(attempt: AttemptId, task: Task, ground: Ground) -> tuple[Record, Mapping[str, Json]]:
    """One attempt from its sandbox to its end.  Raises nothing for what goes wrong in it."""
    course, begun, failure = _Course(), time.monotonic(), None
    try:
        async with asyncio.timeout(ground.settings.episode_deadline_s):
            await _run(attempt, task, ground, course)
    except Exception as error:  # noqa: BLE001  # the boundary: what goes wrong costs one attempt, is named, and is counted
        failure = _failure(course.stage, error)
    record = Record(
        attempt.task,
        attempt.number,
        task.family,
        time.monotonic() - begun,
        course.verdict,
        failure,
        course.effort,
    )
    return record, course.attempting.told() if course.attempting is not None else {"messages": []}


def _failure(stage: Stage, error: Exception) -> Failure:
    first = next(leaves(error))
    message = " ".join(str(first).split()) or "it was not over in its time"
    return Failure(stage, type(first).__name__, message[:_MESSAGE_CHARS])


async def _run(attempt: AttemptId, task: Task, ground: Ground, course: _Course) -> None:
    settings = ground.settings
    deadlines = Deadlines.of(
        asyncio.get_running_loop().time(),
        settings.episode_deadline_s,
        evaluate_s=settings.grade_timeout_s,
        after_s=settings.cleanup_timeout_s,
    )
    async with _sandbox(task, ground) as session:
        course.stage = Stage.AGENT
        terminal = SandboxTerminal(
            session,
            task,
            settings.command_timeout_s,
            settings.grade_timeout_s,
            settings.observation_chars,
            tools=ground.tools,
        )
        with _observing(attempt, task, ground.terminals) as observer:
            playing = course.attempting = ground.player(task, attempt, terminal, observer)
            place = _Place(terminal, course)
            ended = await until_graded(playing.run(), place, task, lambda: playing.last_words, deadlines)
            course.stage = Stage.EVALUATE
            reward = await _reward(ended, task, playing, ground.rewarding)
            observer.on_grade(ended.graded, reward)
        graded = ended.graded
        course.verdict = Verdict(
            graded.all_passed, reward.total, graded.pass_ratio, ended.status, reward.parts, graded.tests
        )
        course.stage = Stage.CLEAN_UP


async def _reward(ended: Ended, task: Task, playing: Attempting, rewarding: Rewarding) -> Reward:
    played = replace(ended.played(task, playing.turns, ()), sampled_tokens=playing.effort.completion_tokens)
    return (await rewarding.worth(played)).reward


@contextmanager
def _observing(attempt: AttemptId, task: Task, terminals: Path | None) -> Generator[Observer]:
    if terminals is None:
        yield Unobserved()
        return
    file = terminals / f"{attempt.uid}.cast"
    with closing(TerminalRecorder(file, task.instruction, _RECORDING_BYTES)) as recorder:
        yield recorder


@asynccontextmanager
async def _sandbox(task: Task, ground: Ground) -> AsyncGenerator[SandboxSession]:
    settings = ground.settings
    try:
        async with asyncio.timeout(settings.acquire_timeout_s):
            session = await ground.pool.open(task, settings.episode_deadline_s)
    except TimeoutError as error:
        raise SandboxStartError(f"no sandbox within {settings.acquire_timeout_s:g} s") from error
    try:
        yield session
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            await _closed(session, ground)
        raise
    await _closed(session, ground)


async def _closed(session: SandboxSession, ground: Ground) -> None:
    async with asyncio.timeout(ground.settings.cleanup_timeout_s):
        await ground.pool.close(session)


@dataclass(slots=True)
class Counted:
    """Of the attempts of one command, as they end."""

    total: int
    done: int = 0
    passed: int = 0
    errors: int = 0

    def add(self, record: Record) -> None:
        self.done += 1
        self.passed += record.verdict is not None and record.verdict.passed
        self.errors += record.verdict is None

    def line(self) -> str:
        graded = self.done - self.errors
        rate = f"{self.passed / graded:.1%}" if graded else "-"
        errors = f" · {self.errors} errors" if self.errors else ""
        return f"{self.done} of {self.total} attempts · {self.passed} passed ({rate}){errors}"
