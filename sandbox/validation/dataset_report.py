"""Summarises a data set: what can be used, why the rest cannot, and what the usable tasks want.  Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.tasks.dataset import Dataset
from sandbox.tasks.network_policy import NetworkPolicy, apply_network_policy
from sandbox.tasks.task import Task
from sandbox.validation.network_needs import TaskPhase, find_unmet_needs
from sandbox.validation.task_warnings import find_task_warnings

_PARTICULARS = (
    (re.compile(r"""(?<!\w)(['"`])(?:(?!\1).)*\1(?!\w)"""), "'…'"),
    (re.compile(r"^step [^:]+: "), ""),
    (re.compile(r"(?<!\S)\S+:\d+(?: and \d+ more)?"), "…"),
    (re.compile(r"(?<![\w=])\d+(?:\.\d+)*\b"), "N"),
)
"""What differs between reasons of one kind (quoted texts, the step, places in files, numbers), and what replaces it."""

Counts = dict[str, int]
"""Reason or property → number of tasks, the largest first."""


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """Numbers of tasks."""

    usable: int
    usable_offline: int
    """Usable tasks that seem to need no network for the agent and the tests; an image's build may need one."""
    unusable: int
    unusable_by_reason: Counts
    """By the first problem of each."""
    remarks_by_reason: Counts
    images: Counts
    """Tasks by the origin of the agent's image, and the number of tasks with services."""
    network: Counts
    """Tasks by the networks that agent and tests ask for."""
    offline_needs: Counts
    """Usable tasks that seem to need a network, by phase: they may fail with ``sandbox.network = "none"``."""
    warnings: Counts
    """Warnings of ``longshore tasks validate`` on usable tasks."""
    grading: Counts
    """Tasks by the grading levels of their steps."""
    hardware: Counts
    """Limits beyond 4 CPUs, 8 GiB of memory or 20 GiB of disk."""


def build_report(found: Dataset) -> DatasetReport:
    """Summarise ``found``, as it was loaded."""
    tasks = found.tasks
    needs = [_offline_needs(task) for task in tasks]
    return DatasetReport(
        usable=len(tasks),
        usable_offline=sum(not each for each in needs),
        unusable=len(found.first_problems),
        unusable_by_reason=_count(_kind_of(problem.what) for problem in found.first_problems),
        remarks_by_reason=_count(_kind_of(remark.what) for remark in found.remarks),
        images=_count(word for task in tasks for word in _image_words(task)),
        network=_count(f"agent {task.network.agent.value}, tests {task.network.verify.value}" for task in tasks),
        offline_needs=_count(phase.value for each in needs for phase in each),
        warnings=_count(kind for task in tasks for kind in dict.fromkeys(map(_kind_of, find_task_warnings(task)))),
        grading=_count(
            level for task in tasks for level in dict.fromkeys(step.grading.value for step in task.in_steps)
        ),
        hardware=_count(word for task in tasks for word in _hardware_words(task)),
    )


def report_rows(report: DatasetReport) -> list[tuple[str, str, str]]:
    """Return rows of section, number of tasks, and reason or property."""
    sections = {
        "unusable": report.unusable_by_reason,
        "remark": report.remarks_by_reason,
        "image": report.images,
        "network": report.network,
        "may need a network": report.offline_needs,
        "warning": report.warnings,
        "grading": report.grading,
        "hardware": report.hardware,
    }
    return [(name, f"{count:,}", what) for name, counts in sections.items() for what, count in counts.items()]


def _count(words: Iterable[str]) -> Counts:
    return dict(Counter(words).most_common())


def _kind_of(reason: str) -> str:
    """Return a reason without what differs from task to task."""
    for particular, placeholder in _PARTICULARS:
        reason = particular.sub(placeholder, reason)
    return reason


def _image_words(task: Task) -> Iterable[str]:
    yield "built" if task.build else "named" if task.image else "longshore's base image"
    if task.services:
        yield "with services"


def _offline_needs(task: Task) -> set[TaskPhase]:
    """Return the phases in which the task seems to need a network and would have none."""
    needs = find_unmet_needs(apply_network_policy(task, NetworkPolicy.NONE))
    return {need.phase for need in needs}


def _hardware_words(task: Task) -> Iterable[str]:
    if task.cpus > 4:
        yield "more than 4 CPUs"
    if task.memory_mb > 8 << 10:
        yield "more than 8 GiB of memory"
    if task.storage_mb > 20 << 10:
        yield "more than 20 GiB of disk"
