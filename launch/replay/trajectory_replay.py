"""Replays one trajectory several times, each in a fresh local sandbox."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from actors.agents.agent import Agent
from actors.rewards.settings import RewardTarget
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.workers.settings import WorkerSpec
from launch.config import RunConfig
from launch.data.task_split import load_usable_tasks
from launch.evaluation.attempts import AttemptId, AttemptRecord, AttemptVerdict
from launch.evaluation.solvers.solver import Solver, SolverRun
from launch.evaluation.standalone.attempt_runner import run_attempts
from launch.evaluation.standalone.evaluation_context import open_evaluation_context
from launch.evaluation.task_selection import select_tasks
from launch.replay.scripted_policy import ReplayEpisode, create_replay_episode
from launch.replay.verdict_comparison import ReplayAttempt, ReplayComparison
from launch.run_records.run_directory import RunDirectory
from launch.trajectory_reader.lookup import FoundTrajectory
from launch.trajectory_reader.run_source import RunTrajectories
from protocol.errors import UserError
from protocol.events import JsonValue
from sandbox.providers.settings import DOCKER
from sandbox.tasks.formats.terminal_bench import load_task
from sandbox.tasks.task import Task

_GENERATED = ("training", "held-out")


class ReplaySubject(NamedTuple):
    """The trajectory to replay, with its task."""

    found: FoundTrajectory
    task: Task
    recorded_verdict: AttemptVerdict
    task_changed: bool
    """Whether the task has changed: its prompt is another one."""


def prepare_subject(found: FoundTrajectory) -> ReplaySubject:
    """Prepare a replay.  Raises UserError if there is nothing to replay or the task is gone."""
    recorded = found.recorded
    if not recorded.replies:
        raise UserError(
            f"{recorded.name} has no reply of a model (an oracle, nobody, or a failure): there is nothing to replay"
        )
    if recorded.verdict is None:
        raise UserError(
            f"{recorded.name} has no verdict, as infrastructure failed it: there is nothing to compare with"
        )
    task = _task(found)
    config, then = found.source.origin.evaluation_settings.config, recorded.verdict
    if config.judge.enabled and config.judge.into is RewardTarget.TOTAL:
        then = replace(then, reward=then.reward - then.parts.get("judge", 0.0))
    changed = found.source.origin.agent.opening_messages(task) != list(recorded.opening)
    return ReplaySubject(found, task, then, changed)


async def replay_trajectory(subject: ReplaySubject, times: int, at_once: int) -> ReplayComparison:
    """Replay the trajectory.  Raises UserError if no Docker engine answers."""
    origin, recorded = subject.found.source.origin, subject.found.recorded
    played: dict[AttemptId, ReplayEpisode] = {}
    records: dict[AttemptId, AttemptRecord] = {}

    @asynccontextmanager
    async def player(settings: WorkerSpec, agent: Agent) -> AsyncGenerator[Solver]:
        del agent

        def play(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
            played[attempt] = create_replay_episode(
                recorded,
                origin,
                task,
                terminal,
                then=subject.recorded_verdict,
                observer=observer,
                settings=settings.episode,
            )
            return played[attempt]

        yield play

    def on_record(record: AttemptRecord, told: Mapping[str, JsonValue]) -> None:
        del told
        records[record.attempt_id] = record

    attempts = [AttemptId(subject.task.id, number) for number in range(times)]
    with TemporaryDirectory(prefix="replay-") as folder, RunDirectory.open(Path(folder)) as directory:
        async with open_evaluation_context(
            _local_config(origin.evaluation_settings.config), directory, min(at_once, times), player
        ) as ground:
            await run_attempts(attempts, {subject.task.id: subject.task}, ground, at_once, on_record)
    return ReplayComparison(
        subject.recorded_verdict, tuple(_again(records[attempt], played.get(attempt)) for attempt in attempts)
    )


def _again(record: AttemptRecord, played: ReplayEpisode | None) -> ReplayAttempt:
    observations = tuple(played.script.observations) if played is not None else ()
    return ReplayAttempt(record.number, record.verdict, record.failure, observations, record.seconds)


def _local_config(config: RunConfig) -> RunConfig:
    """Return the configuration with local sandboxes and without a judge."""
    sandbox = config.sandbox.model_copy(update={"provider": DOCKER})
    return config.model_copy(update={"sandbox": sandbox, "judge": config.judge.model_copy(update={"enabled": False})})


def _task(found: FoundTrajectory) -> Task:
    setting, name = found.source.origin.evaluation_settings, found.recorded.task
    if not isinstance(found.source, RunTrajectories):
        known = select_tasks(setting.tasks, setting.datasets, ()).tasks
        place = setting.tasks
    elif setting.config.data.generated:
        return _generated(found.source.path, name)
    else:
        known, place = (
            {task.id: task for task in load_usable_tasks(setting.config).tasks},
            str(setting.config.data.path),
        )
    if name not in known:
        raise UserError(
            f"{place} has no task {name!r} any more, which {found.recorded.name} is of: put it back, or see "
            f"{shlex.join([Path(sys.executable).name, '-m', 'sandbox.tasks', 'validate', place])}"
        )
    return known[name]


def _generated(run_dir: Path, name: str) -> Task:
    folders = [run_dir / "tasks" / part / name for part in _GENERATED]
    for folder in folders:
        if folder.is_dir():
            return load_task(folder)
    raise UserError(
        f"{folders[0]} is gone, the task of this trajectory: a run's directory has to be whole to replay it"
    )


def run_replays(subject: ReplaySubject, times: int, at_once: int) -> ReplayComparison:
    from launch.processes.interruption import run_interruptible

    found: list[ReplayComparison] = []

    async def work() -> dict[str, JsonValue]:
        found.append(await replay_trajectory(subject, times, at_once))
        return {}

    asyncio.run(run_interruptible(work(), f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"))
    return found[0]
