"""Selects the tasks of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.tasks import task_selection
from sandbox.tasks.dataset import dataset_checksum
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset, read_catalog
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import filter_dataset


class TaskSelection(NamedTuple):
    tasks: dict[str, Task]
    """Tasks by id, in order."""
    checksum: str
    """Checksum of the whole data set."""
    left_out: tuple[str, ...]
    """One line for each task that cannot be used."""


def select_tasks(tasks: str, datasets: Path, only: Sequence[str], ids: Sequence[str] = ()) -> TaskSelection:
    """Return the gradable tasks of ``tasks``: a path if one exists, else a label of ``datasets`` or a built-in one.

    ``only`` are globs; ``ids`` are ids, numbers and ranges (:mod:`sandbox.tasks.task_selection`).  Raises UserError if
    no task is left."""
    exists = Path(tasks).exists()
    found = load_tasks(Path(tasks)) if exists else load_labelled_dataset(_find_catalog(datasets, tasks), tasks)
    whole, named = dataset_checksum(found.tasks), filter_dataset(found, [*only])
    taken = task_selection.select_tasks(named, ids, f"--task-ids: {tasks}").only_gradable()
    problems = tuple(str(problem) for problem in taken.first_problems)
    if not taken.tasks:
        unmatched = f"none is named {' '.join(only)}" if found.tasks and not named.tasks else ""
        why = unmatched or (problems[0] if problems else "it is empty")
        raise UserError(f"{tasks} has no task to evaluate ({why}): longshore tasks validate {tasks}")
    return TaskSelection({task.id: task for task in taken.tasks}, whole, problems)


def _find_catalog(datasets: Path, label: str) -> Path:
    """Return the catalog with the label: the project's own, else the built-in one."""
    own, built_in = read_catalog(datasets) if datasets.exists() else None, read_catalog(BUILT_IN_CATALOG)
    if own and label in own:
        return datasets
    if label in built_in:
        return BUILT_IN_CATALOG
    there = f"there is no {datasets}" if own is None else f"{datasets} has {', '.join(own) or 'none'}"
    raise UserError(
        f"--tasks {label!r} is no folder or file, nor a label: {there}, and longshore comes with {', '.join(built_in)}"
        f"{did_you_mean(label, [*(own or ()), *built_in])}: give a path, or --datasets FILE"
    )
