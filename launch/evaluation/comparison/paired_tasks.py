"""Two evaluations of the same tasks, paired: differences with intervals, and which tasks changed.  Pure.

A task is hard or easy for both, so that its difference says more than the difference of two means.  The interval of a
mean difference is a percentile bootstrap over tasks, as that of pass@k is (:mod:`launch.evaluation.pass_at_k`).  A
single task's change is held against chance by Fisher's exact test (two-sided) on its attempts.  Attempts without a
verdict are nobody's doing and are in neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.evaluation.pass_at_k import TaskTally, bootstrap_interval, pass_at_k, reported_ks

_ALIKE = 1e-9


@dataclass(frozen=True, slots=True)
class TaskPair:
    """One task."""

    task: str
    first: TaskTally
    other: TaskTally

    @property
    def difference(self) -> float:
        """Of the shares of attempts that passed, other − first."""
        return _share(self.other) - _share(self.first)

    @property
    def changed(self) -> bool:
        return abs(self.difference) > _ALIKE

    @property
    def p(self) -> float:
        """Of a difference like this or a rarer one, were both the same."""
        return fisher_exact_p(self.first, self.other)


@dataclass(frozen=True, slots=True)
class PassAtKDifference:
    """Of pass@k, other − first, over the tasks with attempts enough in both."""

    first: float
    other: float
    difference: float
    low: float
    """Of the 95 % interval."""
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class PairedTasks:
    pairs: tuple[TaskPair, ...]
    """Of each task with a verdict in both, by name."""
    at_k: dict[int, PassAtKDifference]
    only_first: tuple[str, ...]
    """Tasks with a verdict in the first alone."""
    only_other: tuple[str, ...]

    @property
    def better(self) -> int:
        """Tasks that the other passes more often."""
        return sum(pair.changed and pair.difference > 0 for pair in self.pairs)

    @property
    def worse(self) -> int:
        return sum(pair.changed and pair.difference < 0 for pair in self.pairs)

    @property
    def changes(self) -> list[TaskPair]:
        """The tasks that changed, the surest first."""
        changed = (pair for pair in self.pairs if pair.changed)
        return sorted(changed, key=lambda pair: (pair.p, -abs(pair.difference), pair.task))


def pair_tasks(first: Mapping[str, TaskTally], other: Mapping[str, TaskTally], seed: int = 0) -> PairedTasks:
    """``first`` and ``other``: task → its attempts that have a verdict."""
    pairs = tuple(TaskPair(task, first[task], other[task]) for task in sorted(first.keys() & other.keys()))
    most = max((min(pair.first.attempts, pair.other.attempts) for pair in pairs), default=0)
    at_k = {k: _difference(pairs, k, seed) for k in reported_ks(most)}
    return PairedTasks(
        pairs, at_k, tuple(sorted(first.keys() - other.keys())), tuple(sorted(other.keys() - first.keys()))
    )


def _difference(pairs: Sequence[TaskPair], k: int, seed: int) -> PassAtKDifference:
    able = [pair for pair in pairs if min(pair.first.attempts, pair.other.attempts) >= k]
    before, after = [pass_at_k(pair.first, k) for pair in able], [pass_at_k(pair.other, k) for pair in able]
    low, high = bootstrap_interval([late - early for early, late in zip(before, after, strict=True)], seed)
    first, other = math.fsum(before) / len(able), math.fsum(after) / len(able)
    return PassAtKDifference(first, other, other - first, low, high, len(able))


def _share(tally: TaskTally) -> float:
    return tally.passed / tally.attempts


def fisher_exact_p(first: TaskTally, other: TaskTally) -> float:
    """The chance that attempts which pass alike in both are parted at least as unevenly as these."""
    passed, attempts = first.passed + other.passed, first.attempts + other.attempts
    ways = {
        here: math.comb(first.attempts, here) * math.comb(other.attempts, passed - here)
        for here in range(max(0, passed - other.attempts), min(first.attempts, passed) + 1)
    }
    here = ways[first.passed]
    return sum(each for each in ways.values() if each <= here) / math.comb(attempts, passed)
