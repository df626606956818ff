"""The order of an epoch's tasks, which the task sampler asks for once at the start of each epoch.

A curriculum is a pure function of the epoch's number, the tasks, and the closed groups' records of each task.  It
orders *all* tasks and never omits one, so every epoch trains the whole data set.  Its inputs are in the journal, so a
resumed run computes the same order again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial

from actors.buffer.task_records import TaskRecord

Curriculum = Callable[[int, Sequence[str], Mapping[str, TaskRecord]], Sequence[int]]
"""(epoch, tasks, records by task; a task that was never tried has none) → a permutation of the tasks' indices."""


class TaskOrder(StrEnum):
    """The built-in curricula."""

    LISTED = "listed"
    """The data set's order, families in rotation; each epoch after the first begins at another task."""
    SHUFFLED = "shuffled"
    """A random permutation for each epoch."""
    FRONTIER = "frontier"
    """Tasks whose pass rate is nearest to one half come first, because the rewards in their groups differ most; untried
    tasks count as one half.  The first epoch is shuffled."""


def make_curriculum(order: TaskOrder, seed: int) -> Curriculum:
    """Return the curriculum ``order``; ``seed`` is the run's."""
    match order:
        case TaskOrder.LISTED:
            return partial(_listed, seed)
        case TaskOrder.SHUFFLED:
            return partial(_shuffled, seed)
        case TaskOrder.FRONTIER:
            return partial(_frontier, seed)


def _listed(seed: int, epoch: int, tasks: Sequence[str], _records: Mapping[str, TaskRecord]) -> list[int]:
    shift = random.Random(f"{seed}/{epoch}").randrange(len(tasks)) if epoch else 0
    return [(index + shift) % len(tasks) for index in range(len(tasks))]


def _shuffled(seed: int, epoch: int, tasks: Sequence[str], _records: Mapping[str, TaskRecord]) -> list[int]:
    order = list(range(len(tasks)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def _frontier(seed: int, epoch: int, tasks: Sequence[str], records: Mapping[str, TaskRecord]) -> list[int]:
    def distance(index: int) -> float:
        record = records.get(tasks[index])
        return abs(record.pass_rate - 0.5) if record and record.episodes else 0.0

    return sorted(_shuffled(seed, epoch, tasks, records), key=distance)
