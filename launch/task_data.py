"""The tasks that lie somewhere, in any format of :mod:`sandbox.tasks`: which can be used, and which are held out."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from typing import NamedTuple

from launch.config import DataKind, RunConfig
from protocol.cli.words import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.datasets import load_label
from sandbox.tasks.families import FAMILIES
from sandbox.tasks.formats import load_tasks
from sandbox.tasks.ids import picked
from sandbox.tasks.task import Task

_HELD_OUT_SHARE = 0.2


class Divided(NamedTuple):
    """What a run is made of."""

    tasks: tuple[Task, ...]
    training: tuple[str, ...]
    """Ids."""
    held_out: tuple[str, ...]
    problems: tuple[str, ...]
    """One line for each task that cannot be used."""


def usable_tasks(config: RunConfig) -> Dataset:
    """The tasks of ``data.path`` that ``data.task_ids`` names.  Raises UserError when nothing can be read there, when
    there is no usable one, or when none or all are of the family that is to be held out."""
    data = config.data
    dataset = picked(_loaded(config), data.task_ids, f"data.task_ids: {data.path}").gradable()
    if not dataset.tasks:
        why = f", the first because {dataset.problems[0]}" if dataset.problems else ""
        raise UserError(f"{data.path} has no usable task{why}: {_validate(config)}")
    family, known = data.held_out_family, sorted({task.family for task in dataset.tasks})
    if family and family not in known and family not in FAMILIES:  # the demo's recipe names one of the generated
        raise UserError(
            f"no task of {data.path} is of the family data.held_out_family = {family!r}: choose one of "
            f"{', '.join(known)}, or hold none out, --set data.held_out_family={did_you_mean(family, known)}"
        )
    if family and [family] == known:
        raise UserError(
            f"every task of {data.path} is of the family data.held_out_family = {family!r}, so that there is "
            "nothing to train on: hold none out, --set data.held_out_family="
        )
    return dataset


def _loaded(config: RunConfig) -> Dataset:
    data = config.data
    assert data.path is not None  # noqa: S101  # checked by the config
    if data.label:
        return load_label(data.path, data.label)
    return load_tasks(data.path, None if data.kind == DataKind.DATASET else data.kind, data.root)


def _validate(config: RunConfig) -> str:
    """The command that names every problem of the tasks."""
    data = config.data
    words = ["python", "-m", "sandbox.tasks", "validate", str(data.path)]
    if data.label:
        words += ["--label", data.label]
    elif data.kind not in {DataKind.DATASET, DataKind.TERMINAL_BENCH}:
        words += ["--format", data.kind]
    return shlex.join(words + (["--root", str(data.root)] if data.root else []))


def divided(config: RunConfig) -> Divided:
    """By a hash of seed and name a fifth of the tasks is held out, but of no family more than
    ``evaluation.tasks_per_family``.  Of the family that is wholly held out, no task is trained.  Raises UserError."""
    dataset = usable_tasks(config)

    def order(task: Task) -> str:
        return hashlib.sha256(f"{config.run.seed}:{task.id}".encode()).hexdigest()

    ordered, most = sorted(dataset.tasks, key=order), config.evaluation.tasks_per_family
    apart = [task for task in ordered if _is_apart(task, config)]
    others = [task for task in ordered if not _is_apart(task, config)]
    wanted, of_family = round(len(others) * _HELD_OUT_SHARE), Counter[str]()
    training: list[str] = []
    held_out: list[str] = []
    for task in others:
        if len(held_out) < wanted and of_family[task.family] < most:
            of_family[task.family] += 1
            held_out.append(task.id)
        else:
            training.append(task.id)
    held_out += [task.id for task in apart[:most]]
    problems = tuple(str(problem) for problem in dataset.unusable)
    return Divided(tuple(ordered), tuple(training), tuple(held_out), problems)


def _is_apart(task: Task, config: RunConfig) -> bool:
    """Of the family that is wholly held out; tasks without a family are none."""
    return task.family != "" and task.family == config.data.held_out_family
