"""Replays one trajectory several times, each in a fresh local sandbox."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from actors.agents.agent import Agent
from actors.rewards.settings import RewardTarget
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal, with_opening_page
from actors.tokens.chat_messages import ChatMessage
from actors.workers.settings import WorkerSpec
from launch.config import RunConfig
from launch.data.task_split import load_usable_tasks
from launch.evaluation.solvers.solver import Solver, SolverRun
from launch.evaluation.standalone.attempt_runner import run_attempts
from launch.evaluation.standalone.evaluation_context import open_evaluation_context
from launch.evaluation.task_selection import select_tasks
from launch.replay.scripted_policy import ReplayEpisode, create_replay_episode
from launch.replay.verdict_comparison import ReplayAttempt, ReplayComparison
from launch.run_records.run_directory import RunDirectory
from launch.trajectory_reader.run_source import RunTrajectories
from launch.trajectory_reader.trajectory_lookup import FoundTrajectory
from protocol.cli.command import typed_command
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.evaluation import AttemptId, AttemptRecord, AttemptVerdict
from protocol.events import JsonValue
from sandbox.providers.settings import DOCKER
from sandbox.tasks.formats.terminal_bench import load_task
from sandbox.tasks.task import Task

_PAGE = "\0page\0"
"""Stands for the text of a page."""
_GENERATED = ("training", "held-out")


class ReplaySubject(NamedTuple):
    """A trajectory to replay, with its task."""

    found: FoundTrajectory
    task: Task
    recorded_verdict: AttemptVerdict
    task_changed: bool
    """Whether the task has another prompt than in the recording."""


def prepare_subject(found: FoundTrajectory) -> ReplaySubject:
    """Find the trajectory's task.  Raises UserError if there is nothing to replay or the task is missing."""
    recorded = found.recorded
    if not recorded.replies:
        raise UserError(
            f"{recorded.name} has no reply of a model, so there is nothing to replay: name one of a model's attempts"
        )
    if recorded.verdict is None:
        raise UserError(
            f"{recorded.name} has no verdict to compare with, as the infrastructure failed it: name another one"
        )
    task = _task(found)
    if task.steps:
        raise UserError(f"{recorded.name} is of a task of several steps, which are not replayed: name another one")
    config, verdict = found.source.origin.config, recorded.verdict
    if config.judge.enabled and config.judge.target is RewardTarget.TOTAL:
        verdict = replace(verdict, reward=verdict.reward - verdict.parts.get("judge", 0.0))
    changed = not asks_for_task(recorded.opening, task, found.source.origin.agent)
    return ReplaySubject(found, task, verdict, changed)


def asks_for_task(opening: Sequence[ChatMessage], task: Task, agent: Agent) -> bool:
    """Return whether the first messages of an episode are the task's, whatever page a browser showed in them."""
    if [*opening] == agent.opening_messages(task):
        return True
    if not task.start_url:
        return False
    around = [message["content"].split(_PAGE) for message in agent.opening_messages(with_opening_page(task, _PAGE))]
    return len(opening) == len(around) and all(
        message["content"].startswith(parts[0]) and message["content"].endswith(parts[-1])
        for message, parts in zip(opening, around, strict=True)
    )


async def replay_trajectory(subject: ReplaySubject, times: int, concurrency: int) -> ReplayComparison:
    """Replay the trajectory.  Raises UserError if no Docker engine answers."""
    origin, recorded = subject.found.source.origin, subject.found.recorded
    episodes: dict[AttemptId, ReplayEpisode] = {}
    records: dict[AttemptId, AttemptRecord] = {}

    @asynccontextmanager
    async def open_solver(settings: WorkerSpec, agent: Agent) -> AsyncGenerator[Solver]:
        del agent

        def solve(
            task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
        ) -> AbstractContextManager[SolverRun]:
            del task
            episodes[attempt] = create_replay_episode(
                recorded,
                origin,
                terminal,
                recorded_verdict=subject.recorded_verdict,
                observer=observer,
                settings=settings.episode,
            )
            return nullcontext(episodes[attempt])

        yield solve

    def on_record(record: AttemptRecord, details: Mapping[str, JsonValue]) -> None:
        del details
        records[record.attempt_id] = record

    attempts = [AttemptId(subject.task.id, number) for number in range(times)]
    with TemporaryDirectory(prefix="replay-") as folder, RunDirectory.open(Path(folder)) as directory:
        async with open_evaluation_context(
            _local_config(origin.config), directory, min(concurrency, times), open_solver
        ) as context:
            tasks = {subject.task.id: subject.task}
            await run_attempts(attempts, tasks, context, concurrency, on_record, console=error_console())
    return ReplayComparison(
        subject.recorded_verdict,
        tuple(_replay_attempt(records[attempt], episodes.get(attempt)) for attempt in attempts),
    )


def _replay_attempt(record: AttemptRecord, episode: ReplayEpisode | None) -> ReplayAttempt:
    observations = tuple(episode.script.observations) if episode is not None else ()
    return ReplayAttempt(record.number, record.verdict, record.failure, observations, record.seconds)


def _local_config(config: RunConfig) -> RunConfig:
    """Return the configuration with local sandboxes and without a judge."""
    sandbox = config.sandbox.model_copy(update={"provider": DOCKER})
    return config.model_copy(update={"sandbox": sandbox, "judge": config.judge.model_copy(update={"enabled": False})})


def _task(found: FoundTrajectory) -> Task:
    source, name = found.source, found.recorded.task
    if isinstance(source, RunTrajectories):
        config = source.origin.config
        if config.data.generated:
            return _generated_task(source.path, name)
        known, folder = {task.id: task for task in load_usable_tasks(config).tasks}, str(config.data.path)
    else:
        settings, folder = source.settings, source.settings.tasks
        known = select_tasks(folder, settings.datasets, ()).with_network(settings.config.sandbox.network).tasks
    if name not in known:
        raise UserError(
            f"{folder} no longer has task {name!r} of {found.recorded.name}: put it back, or see "
            f"{shlex.join(['longshore', 'tasks', 'validate', folder])}"
        )
    return known[name]


def _generated_task(run_dir: Path, name: str) -> Task:
    folders = [run_dir / "tasks" / part / name for part in _GENERATED]
    for folder in folders:
        if folder.is_dir():
            return load_task(folder)
    raise UserError(
        f"{folders[0]}, the task of this trajectory, is missing: a run's directory has to be complete to replay it"
    )


def run_replays(subject: ReplaySubject, times: int, concurrency: int) -> ReplayComparison:
    """Replay the trajectory in an event loop of its own, which Ctrl-C ends cleanly."""
    from launch.processes.interruption import run_interruptible

    found: list[ReplayComparison] = []

    async def work() -> dict[str, JsonValue]:
        found.append(await replay_trajectory(subject, times, concurrency))
        return {}

    asyncio.run(run_interruptible(work(), typed_command("replay")))
    return found[0]
