"""Pairs two evaluations of the same tasks: differences with intervals, and the tasks that changed.  Pure.

Pairing removes the variance of task difficulty.  The interval of a mean difference is a percentile bootstrap over
tasks, like that of pass@k (:mod:`launch.evaluation.scores`).  The change of a single task is tested by Fisher's exact
test (two-sided) on its attempts.  Attempts without a verdict do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.evaluation.scores import TaskTally, bootstrap_interval, pass_at_k, reported_ks

_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class TaskPair:
    """One task in both evaluations."""

    task: str
    first: TaskTally
    other: TaskTally

    @property
    def difference(self) -> float:
        """Difference of the pass rates, other − first."""
        return self.other.pass_rate - self.first.pass_rate

    @property
    def changed(self) -> bool:
        return abs(self.difference) > _EPSILON

    @property
    def p(self) -> float:
        """Probability of a difference at least as rare if both pass equally often."""
        return fisher_exact_p(self.first, self.other)


@dataclass(frozen=True, slots=True)
class PassAtKDifference:
    """Difference of pass@k, other − first, over the tasks with enough attempts in both."""

    first: float
    other: float
    difference: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class PairedTasks:
    pairs: tuple[TaskPair, ...]
    """Tasks with a verdict in both, by name."""
    at_k: dict[int, PassAtKDifference]
    only_first: tuple[str, ...]
    """Tasks with a verdict only in the first."""
    only_other: tuple[str, ...]

    @property
    def better(self) -> int:
        """Number of tasks that the other passes more often."""
        return sum(pair.changed and pair.difference > 0 for pair in self.pairs)

    @property
    def worse(self) -> int:
        return sum(pair.changed and pair.difference < 0 for pair in self.pairs)

    @property
    def changes(self) -> list[TaskPair]:
        """Tasks that changed, most significant first."""
        changed = (pair for pair in self.pairs if pair.changed)
        return sorted(changed, key=lambda pair: (pair.p, -abs(pair.difference), pair.task))


def pair_tasks(first: Mapping[str, TaskTally], other: Mapping[str, TaskTally], seed: int = 0) -> PairedTasks:
    """Pair ``first`` and ``other``, each task → its attempts that have a verdict."""
    pairs = tuple(TaskPair(task, first[task], other[task]) for task in sorted(first.keys() & other.keys()))
    most = max((min(pair.first.attempts, pair.other.attempts) for pair in pairs), default=0)
    at_k = {k: _difference(pairs, k, seed) for k in reported_ks(most)}
    return PairedTasks(
        pairs, at_k, tuple(sorted(first.keys() - other.keys())), tuple(sorted(other.keys() - first.keys()))
    )


def _difference(pairs: Sequence[TaskPair], k: int, seed: int) -> PassAtKDifference:
    enough = [pair for pair in pairs if min(pair.first.attempts, pair.other.attempts) >= k]
    before, after = [pass_at_k(pair.first, k) for pair in enough], [pass_at_k(pair.other, k) for pair in enough]
    low, high = bootstrap_interval([late - early for early, late in zip(before, after, strict=True)], seed)
    first, other = math.fsum(before) / len(enough), math.fsum(after) / len(enough)
    return PassAtKDifference(first, other, other - first, low, high, len(enough))


def fisher_exact_p(first: TaskTally, other: TaskTally) -> float:
    """Return the two-sided p-value of Fisher's exact test that both pass equally often."""
    passed, attempts = first.passed + other.passed, first.attempts + other.attempts
    ways = {
        here: math.comb(first.attempts, here) * math.comb(other.attempts, passed - here)
        for here in range(max(0, passed - other.attempts), min(first.attempts, passed) + 1)
    }
    here = ways[first.passed]
    return sum(each for each in ways.values() if each <= here) / math.comb(attempts, passed)
