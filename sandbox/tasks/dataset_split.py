"""Training and held-out tasks of a data set. Pure."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sandbox.tasks.task import Task


class TaskSplit(StrEnum):
    """The purpose of a task."""

    TRAIN = "train"
    """Warm start and training."""
    HELD_OUT = "held_out"
    """Evaluation only."""


class DatasetSplit(BaseModel):
    """One side of a data set that is divided by a hash of each task's name."""

    model_config = ConfigDict(extra="forbid")
    part: TaskSplit
    held_out: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share of the tasks that is held out."""
    seed: int = 0


def take_split(tasks: tuple[Task, ...], wanted: DatasetSplit | None) -> tuple[Task, ...]:
    """Return one side of the split in the order of ``tasks``; all of them when ``wanted`` is None."""
    if wanted is None:
        return tasks

    def order(task: Task) -> str:
        return hashlib.sha256(f"{wanted.seed}:{task.id}".encode()).hexdigest()

    held = {task.id for task in sorted(tasks, key=order)[: round(len(tasks) * wanted.held_out)]}
    return tuple(task for task in tasks if (task.id in held) is (wanted.part is TaskSplit.HELD_OUT))
