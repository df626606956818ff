"""pass@k without bias, and its interval.  Pure.

Of n attempts at a task c passed: the chance that k of them, drawn without replacement, hold one that passed is
1 − C(n−c, k) ÷ C(n, k) (Chen et al. 2021, Evaluating Large Language Models Trained on Code, equation 1).  pass@k is the
mean over the tasks that have at least k attempts with a verdict.  Its interval is a percentile bootstrap over tasks:
attempts at one task are no independent draws of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_RESAMPLES = 2000
_TAIL = 0.025


class TaskTally(NamedTuple):
    """One task's attempts that have a verdict."""

    attempts: int
    passed: int


@dataclass(frozen=True, slots=True)
class PassAtK:
    value: float
    low: float
    """Of the 95 % interval."""
    high: float
    tasks: int
    """Those that have attempts enough."""


def pass_at_k(tally: TaskTally, k: int) -> float:
    """Raises ValueError unless 1 ≤ ``k`` ≤ attempts."""
    if not 1 <= k <= tally.attempts:
        raise ValueError(f"pass@{k} of {tally.attempts} attempts")
    return 1.0 - math.comb(tally.attempts - tally.passed, k) / math.comb(tally.attempts, k)


def reported_ks(attempts: int) -> list[int]:
    """1, 2, 4, … and ``attempts`` itself."""
    powers = [1 << power for power in range(attempts.bit_length()) if 1 << power < attempts]
    return [*powers, attempts] if attempts > 0 else []


def estimate_pass_at_k(tallies: Sequence[TaskTally], k: int, seed: int) -> PassAtK | None:
    """Of all tasks; None where none has ``k`` attempts.  The same for the same tallies, in their order, and seed."""
    values = [pass_at_k(tally, k) for tally in tallies if tally.attempts >= k]
    if not values:
        return None
    low, high = bootstrap_interval(values, seed)
    return PassAtK(math.fsum(values) / len(values), low, high, len(values))


def bootstrap_interval(values: Sequence[float], seed: int) -> tuple[float, float]:
    """The 95 % interval of the mean of ``values``, one of each task."""
    draws, of_tasks = np.random.default_rng(seed), np.asarray(values, dtype=np.float64)
    means = [of_tasks[draws.integers(len(of_tasks), size=len(of_tasks))].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, (_TAIL, 1 - _TAIL))
    return float(low), float(high)
