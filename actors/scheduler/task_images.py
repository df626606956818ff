"""The tasks that can start on each worker's machine, as far as their images are concerned.  Pure.

Workers with a pool of their own make the images of their tasks while episodes run, and report which are not there yet
and which cannot be made.  A worker that has reported nothing can start every task, so none fails while it asks for
some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TaskImages:
    """The images of a worker's tasks.  What is not named is there, or is made when an episode asks for it."""

    missing: frozenset[str] = frozenset()
    """Tasks of which an image is not there yet."""
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tasks of which an image cannot be made, with the reason."""


class ImageCounts(NamedTuple):
    """Number of training tasks by the state of their images."""

    tasks: int
    ready: int
    """Tasks that some worker can start."""
    failed: int
    """Tasks that no worker can start, because an image cannot be made."""


@dataclass(slots=True)
class TaskImageStates:
    """The workers that start training tasks, with the newest report of each."""

    _reports: dict[str, TaskImages] = field(default_factory=dict[str, TaskImages])

    def add_worker(self, worker: str) -> None:
        """Add a worker that asks for training tasks, unless it is known."""
        self._reports.setdefault(worker, TaskImages())

    def record(self, worker: str, images: TaskImages) -> None:
        """Replace the report of ``worker``."""
        self._reports[worker] = images

    def forget_report(self, worker: str) -> None:
        """Forget the report of a worker that has died and begins again."""
        if worker in self._reports:
            self._reports[worker] = TaskImages()

    def remove_worker(self, worker: str) -> None:
        """Remove a worker that is gone for good."""
        self._reports.pop(worker, None)

    def is_missing(self, task: str, worker: str) -> bool:
        """Return whether an episode of ``task`` on ``worker`` would wait for an image."""
        return (report := self._reports.get(worker)) is not None and task in report.missing

    def can_start(self, task: str, worker: str) -> bool:
        """Return whether ``worker`` has what ``task`` needs, as far as is known."""
        report = self._reports.get(worker)
        return report is None or (task not in report.missing and task not in report.failed)

    def can_start_somewhere(self, task: str) -> bool:
        """Return whether some worker has what ``task`` needs, as far as is known."""
        return any(self.can_start(task, worker) for worker in self._reports)

    def failures(self) -> Mapping[str, str]:
        """Return the tasks that no worker can start because an image fails on each, with the reason."""
        if not self._reports:
            return {}
        first, *others = self._reports.values()
        return {task: why for task, why in first.failed.items() if all(task in each.failed for each in others)}

    def count(self, tasks: Sequence[str]) -> ImageCounts:
        """Return the counts of ``tasks``."""
        failed = self.failures().keys() & set(tasks)
        ready = sum(map(self.can_start_somewhere, tasks))
        return ImageCounts(len(tasks), ready if self._reports else len(tasks), len(failed))
