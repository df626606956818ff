"""Selects the tasks of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.grading.judges import find_unreachable_judges
from sandbox.tasks import task_selection
from sandbox.tasks.dataset import Dataset, dataset_checksum
from sandbox.tasks.dataset_catalog import load_dataset
from sandbox.tasks.network_policy import NetworkPolicy, grant_networks
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import filter_dataset


class TaskSelection(NamedTuple):
    tasks: dict[str, Task]
    """Tasks by id, in order."""
    checksum: str
    """Checksum of the whole data set."""
    left_out: tuple[str, ...]
    """One line for each task that cannot be used."""
    notice: str = ""
    """One line about the tasks as a whole."""

    def with_network(self, policy: NetworkPolicy) -> TaskSelection:
        """Give each task the network that ``policy`` grants, and say if that is less than they ask for; leave out those
        whose tests could not ask their judge.  Raises UserError if no task is left."""
        tasks, notice = grant_networks([*self.tasks.values()], policy, "--set sandbox.network")
        found = Dataset(tasks, ()).without(find_unreachable_judges)
        if not found.tasks:
            raise UserError(f"no task can be evaluated: {found.problems[0]}")
        left_out = (*self.left_out, *map(str, found.first_problems))
        return self._replace(tasks={task.id: task for task in found.tasks}, left_out=left_out, notice=notice)


def select_tasks(
    tasks: str, datasets: Path, only: Sequence[str], ids: Sequence[str] = (), limit: int | None = None
) -> TaskSelection:
    """Return the gradable tasks of ``tasks``: a path if one exists, else a label of ``datasets`` or a built-in one.

    ``only`` are globs; ``ids`` are ids, numbers and ranges (:mod:`sandbox.tasks.task_selection`); the first
    ``limit`` of these are taken.  Raises UserError if no task is left."""
    found = load_dataset(tasks, datasets)
    whole, named = dataset_checksum(found.tasks), filter_dataset(found, [*only])
    taken = task_selection.select_tasks(named, ids, f"--task-ids: {tasks}").only_gradable()
    problems = tuple(str(problem) for problem in taken.first_problems)
    if not taken.tasks:
        unmatched = f"none matches {' '.join(only)}" if found.tasks and not named.tasks else ""
        why = unmatched or (problems[0] if problems else "it is empty")
        raise UserError(f"{tasks} has no task to evaluate ({why}): longshore tasks validate {tasks}")
    return TaskSelection({task.id: task for task in taken.tasks[:limit]}, whole, problems)
