"""The result of loading one task."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.tasks.task import Task, TaskError


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """The task, or its problems; and remarks on what it says."""

    task: Task | None
    problems: tuple[TaskError, ...] = ()
    remarks: tuple[str, ...] = ()

    def require_task(self) -> Task:
        """Return the task. Raises TaskError, the first problem, if there is none."""
        if self.task is None:
            raise self.problems[0]
        return self.task
