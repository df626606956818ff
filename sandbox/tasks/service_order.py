"""The order in which a task's services start.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from sandbox.tasks.task_containers import ServiceCondition, TaskService


def order_services(services: Sequence[TaskService]) -> Iterator[TaskService]:
    """Yield the services so that each comes after those on which it depends.

    Raises graphlib.CycleError where :func:`find_order_problems` finds a circle.
    """
    sorter = TopologicalSorter({each.name: tuple(each.depends_on) for each in services})
    place = {name: number for number, name in enumerate(sorter.static_order())}
    yield from sorted(services, key=lambda each: place[each.name])


def find_order_problems(services: Sequence[TaskService]) -> Iterator[tuple[str, str]]:
    """Yield what keeps services from starting one after another, and why."""
    by_name = {each.name: each for each in services}
    for each in services:
        for other, condition in each.depends_on.items():
            if other not in by_name:
                yield f"service {each.name} depends on {other!r}", "the task has no such service"
            elif condition is ServiceCondition.COMPLETED and not by_name[other].ends:
                yield f"service {each.name} depends on the end of {other!r}", "it does not end: set ends"
    try:
        tuple(order_services(services))
    except CycleError as error:
        circle: list[str] = error.args[1]
        yield f"services depend on each other: {', '.join(circle)}", "none of them could be the first to start"
