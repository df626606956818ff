"""Replays of one trajectory, each in a fresh sandbox of this machine's own."""

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
from actors.episode import Observer
from actors.rewards.settings import Into
from actors.terminal import SandboxTerminal
from actors.worker import WorkerSettings
from launch.config import RunConfig
from launch.config.rollout import DOCKER
from launch.evaluate.attempts import AttemptId, Record, Verdict
from launch.evaluate.ground import open_ground
from launch.evaluate.players import Attempting, Player
from launch.evaluate.runner import run_attempts
from launch.evaluate.tasks import choose
from launch.recorded.named import Found
from launch.recorded.of_run import RunSource
from launch.replay.script import Replaying, replaying
from launch.replay.verdicts import Again, Judged
from launch.rundir import RunDirectory
from launch.task_data import usable_tasks
from protocol.errors import UserError
from protocol.events import Json
from sandbox.tasks.task import Task
from sandbox.tasks.terminal_bench import load_task

_GENERATED = ("training", "held-out")


class Subject(NamedTuple):
    """What is to be replayed."""

    found: Found
    task: Task
    then: Verdict
    changed: bool
    """The task is not what it was: its prompt is another."""


def subject(found: Found) -> Subject:
    """Raises UserError where there is nothing to replay, or its task is gone."""
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
    config, then = found.source.origin.setting.config, recorded.verdict
    if config.judge.enabled and config.judge.into is Into.TOTAL:
        then = replace(then, reward=then.reward - then.parts.get("judge", 0.0))
    changed = found.source.origin.agent.opening(task) != list(recorded.opening)
    return Subject(found, task, then, changed)


async def replays(subject: Subject, times: int, at_once: int) -> Judged:
    """Raises UserError where no Docker engine answers."""
    origin, recorded = subject.found.source.origin, subject.found.recorded
    played: dict[AttemptId, Replaying] = {}
    records: dict[AttemptId, Record] = {}

    @asynccontextmanager
    async def player(settings: WorkerSettings, agent: Agent) -> AsyncGenerator[Player]:
        del agent

        def play(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
            played[attempt] = replaying(
                recorded, origin, task, terminal, then=subject.then, observer=observer, settings=settings.episode
            )
            return played[attempt]

        yield play

    def on_record(record: Record, told: Mapping[str, Json]) -> None:
        del told
        records[record.id] = record

    attempts = [AttemptId(subject.task.id, number) for number in range(times)]
    with TemporaryDirectory(prefix="replay-") as folder, RunDirectory.open(Path(folder)) as directory:
        async with open_ground(_here(origin.setting.config), directory, min(at_once, times), player) as ground:
            await run_attempts(attempts, {subject.task.id: subject.task}, ground, at_once, on_record)
    return Judged(subject.then, tuple(_again(records[attempt], played.get(attempt)) for attempt in attempts))


def _again(record: Record, played: Replaying | None) -> Again:
    observations = tuple(played.script.observations) if played is not None else ()
    return Again(record.number, record.verdict, record.failure, observations, record.seconds)


def _here(config: RunConfig) -> RunConfig:
    """The same with sandboxes of this machine's own, and nobody to judge."""
    sandbox = config.sandbox.model_copy(update={"provider": DOCKER})
    return config.model_copy(update={"sandbox": sandbox, "judge": config.judge.model_copy(update={"enabled": False})})


def _task(found: Found) -> Task:
    setting, name = found.source.origin.setting, found.recorded.task
    if not isinstance(found.source, RunSource):
        known = choose(setting.tasks, setting.datasets, ()).tasks
        place = setting.tasks
    elif setting.config.data.generated:
        return _generated(found.source.path, name)
    else:
        known, place = {task.id: task for task in usable_tasks(setting.config).tasks}, str(setting.config.data.path)
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


def run(subject: Subject, times: int, at_once: int) -> Judged:
    from launch.cluster import interruptible

    found: list[Judged] = []

    async def work() -> dict[str, Json]:
        found.append(await replays(subject, times, at_once))
        return {}

    asyncio.run(interruptible(work(), f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"))
    return found[0]
