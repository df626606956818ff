"""Reads the tasks at ``data.path``, in any format of :mod:`sandbox.tasks`, and splits off the held-out ones."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from typing import NamedTuple

from launch.config import RunConfig
from launch.settings.data import DataKind
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.grading.judges import find_unreachable_judges
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.dataset_catalog import load_labelled_dataset
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import select_tasks

_HELD_OUT_SHARE = 0.2


class TrainingSplit(NamedTuple):
    tasks: tuple[Task, ...]
    training_ids: tuple[str, ...]
    held_out_ids: tuple[str, ...]
    problems: tuple[str, ...]
    """One line for each task that cannot be used."""
    notices: tuple[str, ...]
    """Lines about the tasks as a whole."""


def load_usable_tasks(config: RunConfig) -> Dataset:
    """Return the tasks at ``data.path`` that ``data.task_ids`` or ``data.held_out_ids`` names, with the network that
    ``sandbox.network`` gives them.  Raises UserError if
    nothing can be read there, no task is usable, all are held out, or none is of ``data.held_out_family``."""
    data = config.data
    found = _load(config)
    named = _named_held_out(config, found)
    wanted = (*data.task_ids, *data.held_out_ids) if data.task_ids else ()
    gradable = select_tasks(found, wanted, f"data.task_ids: {data.path}").only_gradable()
    dataset = gradable.with_network(config.sandbox.network, "--set sandbox.network").without(find_unreachable_judges)
    if not dataset.tasks:
        why = f", the first because {dataset.problems[0]}" if dataset.problems else ""
        raise UserError(f"{data.path} has no usable task{why}: {_validate_command(config)}")
    if named.issuperset(task.id for task in dataset.tasks):
        raise UserError(
            f"every usable task is named by data.held_out_ids, so that there is nothing to train on: {data.path} has "
            "others, or hold none out, --set data.held_out_ids="
        )
    family, known = data.held_out_family, sorted({task.family for task in dataset.tasks})
    if family and family not in known and family not in FAMILIES:  # the demo recipe names a generated family
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


def _load(config: RunConfig) -> Dataset:
    data = config.data
    assert data.path is not None  # noqa: S101  # checked by the config
    if data.label:
        return load_labelled_dataset(data.path, data.label)
    return load_tasks(data.path, None if data.kind == DataKind.DATASET else data.kind, data.root)


def _validate_command(config: RunConfig) -> str:
    """Return the command that lists every problem of the tasks."""
    data = config.data
    words = ["longshore", "tasks", "validate", data.label or str(data.path)]
    if data.label:
        words += ["--datasets", str(data.path)]
    elif data.kind not in {DataKind.DATASET, DataKind.TERMINAL_BENCH}:
        words += ["--format", data.kind]
    return shlex.join(words + (["--root", str(data.root)] if data.root else []))


def split_tasks(config: RunConfig) -> TrainingSplit:
    """Hold out the tasks that ``data.held_out_ids`` names, or a fifth by a hash of seed and id, at most
    ``evaluation.tasks_per_family`` of each family.  No task of the held-out family is trained.  Raises UserError."""
    dataset = load_usable_tasks(config)
    named = _named_held_out(config, dataset)

    def order(task: Task) -> str:
        return hashlib.sha256(f"{config.run.seed}:{task.id}".encode()).hexdigest()

    ordered, max_per_family = sorted(dataset.tasks, key=order), config.evaluation.tasks_per_family
    of_held_out_family = [task for task in ordered if _is_of_held_out_family(task, config)]
    others = [task for task in ordered if not _is_of_held_out_family(task, config)]
    wanted, count_by_family = 0 if named else round(len(others) * _HELD_OUT_SHARE), Counter[str]()
    training: list[str] = []
    held_out: list[str] = []
    for task in others:
        if task.id in named:
            held_out.append(task.id)
        elif len(held_out) < wanted and count_by_family[task.family] < max_per_family:
            count_by_family[task.family] += 1
            held_out.append(task.id)
        else:
            training.append(task.id)
    held_out += [task.id for task in of_held_out_family[:max_per_family]]
    problems = tuple(str(problem) for problem in dataset.first_problems)
    return TrainingSplit(tuple(ordered), tuple(training), tuple(held_out), problems, dataset.notices)


def _named_held_out(config: RunConfig, found: Dataset) -> set[str]:
    """Return the ids that ``data.held_out_ids`` names.  Raises UserError."""
    data = config.data
    if not data.held_out_ids:
        return set()
    return {task.id for task in select_tasks(found, data.held_out_ids, f"data.held_out_ids: {data.path}").tasks}


def _is_of_held_out_family(task: Task, config: RunConfig) -> bool:
    """Return whether a task is of the held-out family; one without a family is not."""
    return task.family != "" and task.family == config.data.held_out_family
