"""Derives one line that says who waits for whom from the tasks of all processes.  Pure.

The chain starts at the training loop (or the driver's current phase) and follows each wait to the next process.  The
buffer waits for episodes when it has no batch, so the chain continues with what most episodes wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.processes.task_stacks import TaskStack
from protocol.trajectory import is_training_trajectory

DRIVER, BUFFER = "driver", "buffer"
_TRAINING_FUNCTION, _PHASES_FUNCTION = "TrainingLoop.run", "Driver._run_phases"
"""Functions in whose task the chain starts."""
_MAX_LINKS = 8
_STOPPED = "T"


@dataclass(frozen=True, slots=True)
class ProcessState:
    pid: int
    state: str
    """State letter of the kernel, as in ``ps``."""
    kernel_function: str
    """Kernel function in which the process sleeps; empty if unknown."""
    command: str


@dataclass(frozen=True, slots=True)
class StallEvidence:
    tasks: Mapping[str, Sequence[TaskStack]]
    """Process → its asyncio tasks."""
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Process → why it did not answer."""
    processes: Sequence[ProcessState] = ()
    """Processes of the run on this machine."""
    stacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Process → the stacks of its threads."""

    @property
    def stopped(self) -> list[ProcessState]:
        return [process for process in self.processes if process.state == _STOPPED]


def describe_wait_chain(evidence: StallEvidence) -> str:
    """Return the wait chain as one line of text."""
    links, at, seen = list[str](), DRIVER, set[str]()
    while at and at not in seen and len(links) < _MAX_LINKS:
        seen.add(at)
        link, at = _next_link(evidence, at)
        links.append(link)
    links += [f"process {each.pid} ({each.command}) is stopped (SIGSTOP)" for each in evidence.stopped]
    return "; ".join(links)


def _next_link(evidence: StallEvidence, process: str) -> tuple[str, str]:
    """Return a sentence about ``process``, and the process that it waits for; empty if unknown."""
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
                return _describe_task(what, _leaf(task, tasks))
    return "the driver has no known task", ""


def _leaf(task: TaskStack, tasks: Sequence[TaskStack]) -> TaskStack:
    """Return the task that really waits: the task itself, or a child in its task group."""
    by_name = {each.name: each for each in tasks}
    seen = {task.name}
    while not task.waits_for:
        children = [by_name[name] for name in task.group if name in by_name and name not in seen]
        if not children:
            return task
        task = next((child for child in children if child.waits_for), children[0])
        seen.add(task.name)
    return task


def _describe_task(what: str, task: TaskStack) -> tuple[str, str]:
    if not task.waits_for:
        return f"{what} is in {task.innermost_frame}", ""
    target, _, method = task.waits_for.partition(".")
    return f"{what} waits for {target}" + (f" ({method})" if method else ""), target


def _describe_episodes(evidence: StallEvidence) -> tuple[str, str]:
    """Return what most of the episodes that should fill a batch wait for."""
    running = [task for tasks in evidence.tasks.values() for task in tasks if is_training_trajectory(task.name)]
    if not running:
        idle = [name for name, tasks in evidence.tasks.items() if any(_is_idle_worker(task) for task in tasks)]
        if idle:
            return f"no episode runs: {len(idle)} workers wait for rollout requests of the scheduler", ""
        return "no episode runs", ""
    found = Counter(task.waits_for or task.innermost_frame for task in running)
    ((most, count),) = found.most_common(1)
    target, _, method = most.partition(".")
    known = any(task.waits_for == most for task in running)
    where = f"for {target} ({method})" if known else f"in {most}"
    return f"{count} of {len(running)} episodes wait {where}", target if known else ""


def _is_idle_worker(task: TaskStack) -> bool:
    return task.waits_for == "scheduler.acquire_requests"


def _describe_majority(process: str, tasks: Sequence[TaskStack]) -> tuple[str, str]:
    """Return what most tasks of a process wait for, without tasks that only sleep or wait for work."""
    waits = Counter(
        task.waits_for or task.innermost_frame
        for task in tasks
        if task.waits_for or not task.innermost_frame.startswith("/")
    )
    if not waits:
        return f"{process} waits for nothing known: see its stacks", ""
    ((most, count),) = waits.most_common(1)
    if any(task.waits_for == most for task in tasks):
        target, _, method = most.partition(".")
        return f"{process} waits for {target} ({method})", target
    return f"{process} has {count} of {len(tasks)} tasks in {most}", ""
