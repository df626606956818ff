"""Tasks written as files, and the commands that solve and fail generated ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.generator import draft_task
from sandbox.tasks.formats.registry import find_format
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.task import Task


def write_tasks(tasks: Iterable[Task], form: str, target: Path) -> None:
    """Write all ``tasks`` or none: folder formats below the folder ``target``, others as the file ``target``.

    Raises TaskError if something exists already, or a task cannot be written so that it is read back equal.
    """
    planned = plan_dataset_write(find_format(form), tasks, target)
    if planned.problems:
        raise planned.problems[0]
    planned.write()


def solution_command(task: Task) -> str:
    """Return the one command that solves a generated task."""
    return task.solution.removesuffix("\n")


def wrong_commands(task: Task) -> tuple[str, ...]:
    """Return plausible commands that leave a generated task in a wrong final state."""
    family, split, seed = task.id.rsplit("-", 2)
    return draft_task(family, int(seed), TaskSplit(split)).mistakes
