"""One line that says who waits for whom, from where every task waits.  Pure.

It begins with the training (or whatever the driver is at), and goes on with whoever that waits for.  A buffer that has
no batch waits for episodes, so the line goes on with what most of these wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.processes.task_stacks import TaskStack
from protocol.trajectory import is_training_trajectory

DRIVER, BUFFER = "driver", "buffer"
_TRAINING_FUNCTION, _PHASES_FUNCTION = "TrainingLoop.run", "Driver._run_phases"
"""Functions of the task from which everything else follows."""
_MOST_LINKS = 8
_STOPPED = "T"


@dataclass(frozen=True, slots=True)
class ProcessState:
    pid: int
    state: str
    """The kernel's letter."""
    kernel_function: str
    """The kernel's function that it sleeps in, where it says."""
    command: str


@dataclass(frozen=True, slots=True)
class StallEvidence:
    tasks: Mapping[str, Sequence[TaskStack]]
    """Process → its asyncio tasks."""
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Process → why it did not say."""
    processes: Sequence[ProcessState] = ()
    """All of the run's on this machine."""
    stacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Process → the stacks of its threads."""

    @property
    def stopped(self) -> list[ProcessState]:
        return [process for process in self.processes if process.state == _STOPPED]


def describe_wait_chain(evidence: StallEvidence) -> str:
    links, at, seen = list[str](), DRIVER, set[str]()
    while at and at not in seen and len(links) < _MOST_LINKS:
        seen.add(at)
        link, at = _next_link(evidence, at)
        links.append(link)
    links += [f"process {each.pid} ({each.command}) is stopped (SIGSTOP)" for each in evidence.stopped]
    return "; ".join(links)


def _next_link(evidence: StallEvidence, process: str) -> tuple[str, str]:
    """What to say of ``process``, and whom it waits for, if that is known."""
    if process in evidence.silent:
        return f"{process} does not answer ({evidence.silent[process]})", ""
    if process == DRIVER:
        return _main_task(evidence.tasks.get(DRIVER, ()))
    if process == BUFFER:
        return _describe_episodes(evidence)
    return _describe_majority(process, evidence.tasks.get(process, ()))


def _main_task(tasks: Sequence[TaskStack]) -> tuple[str, str]:
    for function, what in ((_TRAINING_FUNCTION, "the training"), (_PHASES_FUNCTION, "the driver")):
        for task in tasks:
            if any(frame.endswith(f" {function}") for frame in task.frames):
                return _of_task(what, _leaf(task, tasks))
    return "the driver has no task that could be told of", ""


def _leaf(task: TaskStack, tasks: Sequence[TaskStack]) -> TaskStack:
    """The task itself, or one of the group that it waits for."""
    by_name = {each.name: each for each in tasks}
    seen = {task.name}
    while not task.waits_for:
        children = [by_name[name] for name in task.group if name in by_name and name not in seen]
        if not children:
            return task
        task = next((child for child in children if child.waits_for), children[0])
        seen.add(task.name)
    return task


def _of_task(what: str, task: TaskStack) -> tuple[str, str]:
    if not task.waits_for:
        return f"{what} is in {task.innermost_frame}", ""
    whom, _, method = task.waits_for.partition(".")
    return f"{what} waits for {whom}" + (f" ({method})" if method else ""), whom


def _describe_episodes(evidence: StallEvidence) -> tuple[str, str]:
    """What the episodes that are to fill a batch wait for."""
    running = [task for tasks in evidence.tasks.values() for task in tasks if is_training_trajectory(task.name)]
    if not running:
        asking = [name for name, tasks in evidence.tasks.items() if any(_asks(task) for task in tasks)]
        if asking:
            return f"no episode runs: {len(asking)} workers wait for rollout requests of the scheduler", ""
        return "no episode runs", ""
    found = Counter(task.waits_for or task.innermost_frame for task in running)
    ((most, count),) = found.most_common(1)
    whom, _, method = most.partition(".")
    known = any(task.waits_for == most for task in running)
    place = f"for {whom} ({method})" if known else f"in {most}"
    return f"{count} of {len(running)} episodes wait {place}", whom if known else ""


def _asks(task: TaskStack) -> bool:
    return task.waits_for == "scheduler.acquire_requests"


def _describe_majority(process: str, tasks: Sequence[TaskStack]) -> tuple[str, str]:
    """What most tasks of a process wait for, that do not only wait for other work or for the next moment."""
    places = Counter(
        task.waits_for or task.innermost_frame
        for task in tasks
        if task.waits_for or not task.innermost_frame.startswith("/")
    )
    if not places:
        return f"{process} tells by its stacks alone what it is at", ""
    ((most, count),) = places.most_common(1)
    if any(task.waits_for == most for task in tasks):
        whom, _, method = most.partition(".")
        return f"{process} waits for {whom} ({method})", whom
    return f"{process} has {count} of {len(tasks)} tasks in {most}", ""
