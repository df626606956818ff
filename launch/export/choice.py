"""Which trajectories are handed on.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launch.recorded.trajectory import Origin, Recorded
from sandbox.tasks.datasets import takes


class LeftOut(StrEnum):
    """Why a trajectory is not handed on; each for the first reason that it has."""

    TASK = "task"
    """Its task's name matches no ``--only``, or one that leaves out."""
    REWARD = "reward"
    """Below ``--min-reward``."""
    FAILED = "failed"
    """Not all of its tests passed, and ``--passed`` asks for that."""
    NO_REPLY = "no reply"
    """Nobody said anything: an oracle's, or one whose first prompt left no room."""
    UNFIT = "unfit"
    """The format cannot say what is in it."""


class Item(NamedTuple):
    recorded: Recorded
    origin: Origin


@dataclass(slots=True)
class Choice:
    """Chooses, and counts what it leaves out."""

    only: tuple[str, ...] = ()
    """Globs of tasks' names; ``!GLOB`` leaves out."""
    min_reward: float | None = None
    passed: bool = False
    left_out: Counter[LeftOut] = field(default_factory=Counter[LeftOut])
    taken: int = 0

    def wanted(self, task: str, reward: float) -> bool:
        """What can be said before a trajectory is read."""
        reason = self._before(task, reward)
        if reason is not None:
            self.left_out[reason] += 1
        return reason is None

    def fitting(self, items: Iterable[Item], fits: Callable[[Recorded], bool]) -> Iterator[Item]:
        """Of those that are wanted the ones that passed, if that is asked for, and that the format can say."""
        for item in items:
            reason = self._after(item.recorded, fits)
            if reason is None:
                self.taken += 1
                yield item
            else:
                self.left_out[reason] += 1

    def _before(self, task: str, reward: float) -> LeftOut | None:
        if self.only and not takes([*self.only], task):
            return LeftOut.TASK
        return LeftOut.REWARD if self.min_reward is not None and reward < self.min_reward else None

    def _after(self, recorded: Recorded, fits: Callable[[Recorded], bool]) -> LeftOut | None:
        if self.passed and not (recorded.verdict is not None and recorded.verdict.passed):
            return LeftOut.FAILED
        if not recorded.replies:
            return LeftOut.NO_REPLY
        return None if fits(recorded) else LeftOut.UNFIT
