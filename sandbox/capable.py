"""What a pool can give to a task.  Pure.

A task that needs more is refused before anything starts: without its services or its network it would be another task,
and its score would say nothing.
"""

from __future__ import annotations

from protocol.errors import UserError
from sandbox.tasks.task import NetworkMode, Task


class TaskBeyondPool(UserError):
    """A task that needs what a pool does not give."""

    def __init__(self, task: Task, what: str) -> None:
        super().__init__(
            f"task {task.id} needs {what}, which a pool does not give: leave it out, or change it to use one container "
            "without network"
        )


def lacking(task: Task) -> str:
    """What ``task`` needs beyond one container without network; empty for nothing."""
    wants = (
        (f"services: {', '.join(service.name for service in task.services)}", bool(task.services)),
        ("a network", {task.network.agent, task.network.verify} != {NetworkMode.NONE}),
    )
    return ", ".join(what for what, wanted in wants if wanted)


def refuse(task: Task) -> None:
    """Raises TaskBeyondPool."""
    if what := lacking(task):
        raise TaskBeyondPool(task, what)
