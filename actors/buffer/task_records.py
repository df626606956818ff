"""Episode and pass counts per task over closed groups, by which a curriculum orders tasks.

The buffer reads them from the journal; the scheduler's task sampler continues counting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from protocol.journal import ClosedGroup


@dataclass(slots=True)
class TaskRecord:
    """The episodes of one task that closed groups have counted."""

    episodes: int = 0
    passed: int = 0

    @property
    def pass_rate(self) -> float:
        """Share of episodes that passed.  Raises ZeroDivisionError before the first episode."""
        return self.passed / self.episodes


TaskRecords: TypeAlias = Mapping[str, TaskRecord]
"""Records by task id; a task without a closed group has no entry."""


def record_outcome(records: dict[str, TaskRecord], closing: ClosedGroup) -> None:
    """Add the episodes of a closed group to its task's record."""
    record = records.setdefault(closing.task, TaskRecord())
    record.episodes += len(closing.rewards)
    record.passed += len(closing.passed)
