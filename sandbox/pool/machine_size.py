"""Refuses tasks that this machine is too small for: an engine creates no container with more CPUs than it has, and a
memory limit beyond its memory limits nothing."""

from __future__ import annotations

from sandbox.docker.engine import MachineSize
from sandbox.errors import TaskFault
from sandbox.tasks.task import Task


def check_machine(task: Task, machine: MachineSize) -> None:
    """Raise TaskFault if a container of ``task`` would have more than ``machine``; it would fail again."""
    containers = (task, *task.services, *task.tests_environments)
    cpus = max(each.cpus or 0.0 for each in containers)
    if cpus > machine.cpus:
        raise TaskFault(
            f"task {task.id} asks for {cpus:g} CPUs, and this machine has {machine.cpus}: lower the task's cpus, or "
            "run it on a larger machine"
        )
    memory_mb = max(each.memory_mb or 0 for each in containers)
    if memory_mb > machine.memory_mb:
        raise TaskFault(
            f"task {task.id} asks for {memory_mb} MiB of memory, and this machine has {machine.memory_mb}: lower the "
            "task's memory, or run it on a larger machine"
        )
