"""Selects the trajectories to export.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory, TrajectoryOrigin
from sandbox.tasks.task_selection import matches_patterns


class ExclusionReason(StrEnum):
    """Why a trajectory is excluded; each for the first reason that it has."""

    TASK = "task"
    """The task's name matches no ``--only``, or one that excludes it."""
    REWARD = "reward"
    """The reward is below ``--min-reward``."""
    FAILED = "failed"
    """Not all tests passed, and ``--passed`` requires that."""
    NO_REPLY = "no reply"
    """There is no reply: an oracle's, or one whose first prompt left no room."""
    NOT_REPRESENTABLE = "unfit"
    """The format cannot represent it."""


class ExportItem(NamedTuple):
    recorded: RecordedTrajectory
    origin: TrajectoryOrigin


@dataclass(slots=True)
class TrajectorySelection:
    """Selects trajectories and counts the excluded ones."""

    only: tuple[str, ...] = ()
    """Globs of task names; ``!GLOB`` excludes."""
    min_reward: float | None = None
    passed: bool = False
    excluded: Counter[ExclusionReason] = field(default_factory=Counter[ExclusionReason])
    selected: int = 0

    def accepts(self, task: str, reward: float) -> bool:
        """Decide what is known before a trajectory is read."""
        reason = self._before(task, reward)
        if reason is not None:
            self.excluded[reason] += 1
        return reason is None

    def select(self, items: Iterable[ExportItem], fits: Callable[[RecordedTrajectory], bool]) -> Iterator[ExportItem]:
        """Keep the wanted trajectories that passed, if that is asked for, and that the format can represent."""
        for item in items:
            reason = self._after(item.recorded, fits)
            if reason is None:
                self.selected += 1
                yield item
            else:
                self.excluded[reason] += 1

    def _before(self, task: str, reward: float) -> ExclusionReason | None:
        if self.only and not matches_patterns([*self.only], task):
            return ExclusionReason.TASK
        return ExclusionReason.REWARD if self.min_reward is not None and reward < self.min_reward else None

    def _after(
        self, recorded: RecordedTrajectory, fits: Callable[[RecordedTrajectory], bool]
    ) -> ExclusionReason | None:
        if self.passed and not (recorded.verdict is not None and recorded.verdict.passed):
            return ExclusionReason.FAILED
        if not recorded.replies:
            return ExclusionReason.NO_REPLY
        return None if fits(recorded) else ExclusionReason.NOT_REPRESENTABLE
