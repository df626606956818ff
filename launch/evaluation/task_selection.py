"""Which tasks an evaluation is of."""

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
    """By id, in their order."""
    checksum: str
    """Of the whole data set."""
    left_out: tuple[str, ...]
    """One line for each task that cannot be used."""


def select_tasks(tasks: str, datasets: Path, only: Sequence[str], ids: Sequence[str] = ()) -> TaskSelection:
    """A path where there is one of that name, else a label, of ``datasets`` or of ours.  ``only`` are globs, ``ids`` as
    :mod:`sandbox.tasks.task_selection` has them.  Raises UserError where nothing is left to do."""
    found = load_tasks(Path(tasks)) if Path(tasks).exists() else load_labelled_dataset(_known(datasets, tasks), tasks)
    whole, named = dataset_checksum(found.tasks), filter_dataset(found, [*only])
    taken = task_selection.select_tasks(named, ids, f"--task-ids: {tasks}").only_gradable()
    problems = tuple(str(problem) for problem in taken.first_problems)
    if not taken.tasks:
        nobody = f"none is named {' '.join(only)}" if found.tasks and not named.tasks else ""
        why = nobody or (problems[0] if problems else "nothing there is one")
        raise UserError(f"{tasks} has no task to evaluate ({why}): python -m sandbox.tasks validate {tasks}")
    return TaskSelection({task.id: task for task in taken.tasks}, whole, problems)


def _known(datasets: Path, label: str) -> Path:
    """The file of labels that has it: the project's own, else ours."""
    own, ours = read_catalog(datasets) if datasets.exists() else None, read_catalog(BUILT_IN_CATALOG)
    if own and label in own:
        return datasets
    if label in ours:
        return BUILT_IN_CATALOG
    there = f"there is no {datasets}" if own is None else f"{datasets} has {', '.join(own) or 'none'}"
    raise UserError(
        f"--tasks {label!r} is no folder or file, nor a label: {there}, and longshore comes with {', '.join(ours)}"
        f"{did_you_mean(label, [*(own or ()), *ours])}: give a path, or --datasets FILE"
    )
