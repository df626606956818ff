"""Scores of evaluations: pass@1 with standard errors, unbiased pass@k with intervals, differences.  Pure.

pass@1 is the mean over tasks of the share of sampled attempts that passed.  Attempts at one task are not independent,
so its standard error is that of the task means, sd(task means) ÷ √tasks, and a difference is paired by task.

pass@k of a task with n attempts, c of which passed, is 1 − C(n−c, k) ÷ C(n, k): the chance that k of them, drawn
without replacement, include one that passed (Chen et al. 2021, Evaluating Large Language Models Trained on Code,
equation 1).  pass@k of an evaluation is the mean over the tasks with at least k attempts that have a verdict; its
interval is a percentile bootstrap over tasks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue

Z95 = 1.959964
_RESAMPLES = 2000
_TAIL = 0.025


class TaskTally(NamedTuple):
    """The attempts at one task that have a verdict."""

    attempts: int
    passed: int

    @property
    def pass_rate(self) -> float:
        return self.passed / self.attempts


def tally_tasks(records: Iterable[AttemptRecord]) -> dict[str, TaskTally]:
    """Return task → its attempts that have a verdict, sorted by task."""
    found: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record.verdict is not None:
            found[record.task].append(record.verdict.passed)
    return {task: TaskTally(len(each), sum(each)) for task, each in sorted(found.items())}


# -- pass@1 and its standard error -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassRateEstimate:
    pass_at_1: float
    stderr: float | None
    """Standard error; None for a single task."""
    n: int
    """Number of attempts."""
    tasks: int


@dataclass(frozen=True, slots=True)
class OnlineEvaluationScore:
    """The score of an online evaluation."""

    step: int
    """Optimizer step of the weights."""
    score: PassRateEstimate


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    difference: float
    stderr: float | None
    ci95: tuple[float, float] | None


def score_attempts(attempts: Iterable[AttemptRecord], *, greedy: bool = False) -> PassRateEstimate:
    """Return pass@1 of the sampled, or of the greedy, attempts."""
    tallies = _tally(attempts, greedy=greedy)
    mean, stderr = _mean_and_error([tally.pass_rate for tally in tallies.values()])
    return PassRateEstimate(mean, stderr, sum(tally.attempts for tally in tallies.values()), len(tallies))


def compare_attempts(before: Iterable[AttemptRecord], after: Iterable[AttemptRecord]) -> ScoreDifference:
    """Return after − before over the tasks of both, by sampled attempts."""
    first, second = _tally(before), _tally(after)
    mean, stderr = _mean_and_error([second[task].pass_rate - first[task].pass_rate for task in first if task in second])
    return ScoreDifference(mean, stderr, None if stderr is None else (mean - Z95 * stderr, mean + Z95 * stderr))


def _tally(attempts: Iterable[AttemptRecord], *, greedy: bool = False) -> dict[str, TaskTally]:
    return tally_tasks(attempt for attempt in attempts if attempt.greedy == greedy)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    mean = sum(values) / len(values) if values else 0.0
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def round_score(value: float | None) -> float | None:
    """Round to the four digits that summaries have."""
    return None if value is None else round(value, 4)


# -- pass@k and its interval -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassAtK:
    value: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    tasks: int
    """Number of tasks with enough attempts."""


def pass_at_k(tally: TaskTally, k: int) -> float:
    """Return pass@k of one task.  Raises ValueError unless 1 ≤ ``k`` ≤ attempts."""
    if not 1 <= k <= tally.attempts:
        raise ValueError(f"pass@{k} of {tally.attempts} attempts")
    return 1.0 - math.comb(tally.attempts - tally.passed, k) / math.comb(tally.attempts, k)


def reported_ks(attempts: int) -> list[int]:
    """Return 1, 2, 4, … and ``attempts`` itself."""
    powers = [1 << power for power in range(attempts.bit_length()) if 1 << power < attempts]
    return [*powers, attempts] if attempts > 0 else []


def estimate_pass_at_k(tallies: Iterable[TaskTally], k: int, seed: int) -> PassAtK | None:
    """Return pass@k over all tasks, or None if none has ``k`` attempts.  Deterministic in ``tallies`` and ``seed``."""
    values = [pass_at_k(tally, k) for tally in tallies if tally.attempts >= k]
    if not values:
        return None
    low, high = bootstrap_interval(values, seed)
    return PassAtK(math.fsum(values) / len(values), low, high, len(values))


def bootstrap_interval(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of ``values``, one for each task."""
    draws, by_task = np.random.default_rng(seed), np.asarray(values, dtype=np.float64)
    means = [by_task[draws.integers(len(by_task), size=len(by_task))].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, (_TAIL, 1 - _TAIL))
    return float(low), float(high)


# -- by family -------------------------------------------------------------------------------------------------------


def drop_held_out_families(attempts: Iterable[AttemptRecord], held_out: Collection[str]) -> list[AttemptRecord]:
    """Return the attempts of families that were trained."""
    return [attempt for attempt in attempts if attempt.family not in held_out]


def evaluation_headline(attempts: Iterable[AttemptRecord], held_out: Collection[str]) -> dict[str, JsonValue]:
    """Return the score of the families that were trained, as events and summaries show it."""
    counted = drop_held_out_families(attempts, held_out)
    return {**_score_fields(counted), "tasks": len({attempt.task for attempt in counted})}


def family_table(evaluations: Mapping[str, Sequence[AttemptRecord]], held_out: Collection[str]) -> dict[str, JsonValue]:
    """Return, for each family, the score of each evaluation, and the paired difference of before and after."""
    table: dict[str, JsonValue] = {}
    split = {name: _group_by_family(attempts) for name, attempts in evaluations.items()}
    for family in sorted({family for families in split.values() for family in families}):
        row: dict[str, JsonValue] = {"held_out": family in held_out}
        row |= {name: _score_fields(families.get(family, [])) for name, families in split.items()}
        if {"before", "after"} <= split.keys():
            change = compare_attempts(split["before"].get(family, []), split["after"].get(family, []))
            row["difference"], row["difference_stderr"] = round(change.difference, 4), round_score(change.stderr)
        table[family] = row
    return table


def _score_fields(attempts: Sequence[AttemptRecord]) -> dict[str, JsonValue]:
    sampled = score_attempts(attempts)
    return {
        "pass_at_1": round(sampled.pass_at_1, 4),
        "stderr": round_score(sampled.stderr),
        "n": sampled.n,
        "greedy": round(score_attempts(attempts, greedy=True).pass_at_1, 4),
    }


def _group_by_family(attempts: Iterable[AttemptRecord]) -> dict[str, list[AttemptRecord]]:
    families: dict[str, list[AttemptRecord]] = defaultdict(list)
    for attempt in attempts:
        families[attempt.family].append(attempt)
    return dict(sorted(families.items()))
