"""The tasks that lie somewhere, in any format of :mod:`sandbox.tasks`: which can be used, and which are held out."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from typing import NamedTuple

from launch.config import DataKind, RunConfig
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.dataset_catalog import load_labelled_dataset
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import select_tasks

_HELD_OUT_SHARE = 0.2


class TrainingSplit(NamedTuple):
    """What a run is made of."""

    tasks: tuple[Task, ...]
    training_ids: tuple[str, ...]
    """Ids."""
    held_out_ids: tuple[str, ...]
    problems: tuple[str, ...]
    """One line for each task that cannot be used."""


def load_usable_tasks(config: RunConfig) -> Dataset:
    """The tasks of ``data.path`` that ``data.task_ids`` or ``data.held_out_ids`` names.  Raises UserError when nothing
    can be read there, when there is no usable one, when all are held out, or none is of the family that is to be."""
    data = config.data
    found = _loaded(config)
    named = _named_held_out(config, found)
    wanted = (*data.task_ids, *data.held_out_ids) if data.task_ids else ()
    dataset = select_tasks(found, wanted, f"data.task_ids: {data.path}").only_gradable()
    if not dataset.tasks:
        why = f", the first because {dataset.problems[0]}" if dataset.problems else ""
        raise UserError(f"{data.path} has no usable task{why}: {_validate(config)}")
    if named.issuperset(task.id for task in dataset.tasks):
        raise UserError(
            f"every usable task is named by data.held_out_ids, so that there is nothing to train on: {data.path} has "
            "others, or hold none out, --set data.held_out_ids="
        )
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
        return load_labelled_dataset(data.path, data.label)
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


def split_tasks(config: RunConfig) -> TrainingSplit:
    """Held out are the tasks that ``data.held_out_ids`` names; or, by a hash of seed and name, a fifth, but of no
    family more than ``evaluation.tasks_per_family``.  Of the family that is wholly held out, no task is trained.
    Raises UserError."""
    dataset = load_usable_tasks(config)
    named = _named_held_out(config, dataset)

    def order(task: Task) -> str:
        return hashlib.sha256(f"{config.run.seed}:{task.id}".encode()).hexdigest()

    ordered, most = sorted(dataset.tasks, key=order), config.evaluation.tasks_per_family
    apart = [task for task in ordered if _is_of_held_out_family(task, config)]
    others = [task for task in ordered if not _is_of_held_out_family(task, config)]
    wanted, of_family = 0 if named else round(len(others) * _HELD_OUT_SHARE), Counter[str]()
    training: list[str] = []
    held_out: list[str] = []
    for task in others:
        if task.id in named:
            held_out.append(task.id)
        elif len(held_out) < wanted and of_family[task.family] < most:
            of_family[task.family] += 1
            held_out.append(task.id)
        else:
            training.append(task.id)
    held_out += [task.id for task in apart[:most]]
    problems = tuple(str(problem) for problem in dataset.first_problems)
    return TrainingSplit(tuple(ordered), tuple(training), tuple(held_out), problems)


def _named_held_out(config: RunConfig, found: Dataset) -> set[str]:
    """Ids.  Raises UserError."""
    data = config.data
    if not data.held_out_ids:
        return set()
    return {task.id for task in select_tasks(found, data.held_out_ids, f"data.held_out_ids: {data.path}").tasks}


def _is_of_held_out_family(task: Task, config: RunConfig) -> bool:
    """Of the family that is wholly held out; tasks without a family are none."""
    return task.family != "" and task.family == config.data.held_out_family
