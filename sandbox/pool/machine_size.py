"""Refuses tasks that this machine is too small for: an engine creates no container with more CPUs than it has.

A memory limit beyond the machine's memory is accepted, as Docker and Harbor do: many tasks ask for more than they use.
Where the memory is used up, the kernel ends processes of sandboxes first.
"""

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
