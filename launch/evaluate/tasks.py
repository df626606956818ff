"""Which tasks an evaluation is of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.cli.words import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.datasets import checksum, filtered, load_label, read_entries
from sandbox.tasks.formats import load_tasks
from sandbox.tasks.ids import picked
from sandbox.tasks.task import Task


class Chosen(NamedTuple):
    tasks: dict[str, Task]
    """By id, in their order."""
    checksum: str
    """Of the whole data set."""
    left_out: tuple[str, ...]
    """One line for each task that cannot be used."""


def choose(tasks: str, datasets: Path, only: Sequence[str], ids: Sequence[str] = ()) -> Chosen:
    """A path where there is one of that name, else a label.  ``only`` are globs, ``ids`` as :mod:`sandbox.tasks.ids`
    has them.  Raises UserError where nothing is left to do."""
    found = load_tasks(Path(tasks)) if Path(tasks).exists() else load_label(_known(datasets, tasks), tasks)
    whole, named = checksum(found.tasks), filtered(found, [*only])
    taken = picked(named, ids, f"--task-ids: {tasks}").gradable()
    problems = tuple(str(problem) for problem in taken.unusable)
    if not taken.tasks:
        nobody = f"none is named {' '.join(only)}" if found.tasks and not named.tasks else ""
        why = nobody or (problems[0] if problems else "nothing there is one")
        raise UserError(f"{tasks} has no task to evaluate ({why}): python -m sandbox.tasks validate {tasks}")
    return Chosen({task.id: task for task in taken.tasks}, whole, problems)


def _known(datasets: Path, label: str) -> Path:
    if not datasets.exists():
        raise UserError(
            f"--tasks {label!r} is no folder or file, and there is no {datasets} in which it could be a label: give a "
            "path, or --datasets FILE"
        )
    labels = read_entries(datasets)
    if label not in labels:
        raise UserError(
            f"--tasks {label!r} is no folder or file, nor a label of {datasets}, which has "
            f"{', '.join(labels) or 'none'}{did_you_mean(label, labels)}"
        )
    return datasets
