"""Refuses tasks that this machine has too few CPUs for: an engine creates no container with more than it has."""

from __future__ import annotations

from sandbox.errors import TaskFault
from sandbox.tasks.task import Task


def check_cpus(task: Task, cpus: int) -> None:
    """Raise TaskFault if a container of ``task`` would have more than ``cpus``; it would fail again."""
    most = max(each.cpus or 0.0 for each in (task, *task.services, *task.tests_environments))
    if most > cpus:
        raise TaskFault(
            f"task {task.id} asks for {most:g} CPUs, and this machine has {cpus}: lower the task's cpus, or run it on "
            "a larger machine"
        )
