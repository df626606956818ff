"""What evaluations say: pass@1, standard errors, differences.  Pure.

pass@1 is the mean over tasks of the share of sampled attempts that passed.  Attempts at one task are not independent,
so the standard error is that of the task means: sd(task means) ÷ √tasks.  A difference is paired by task.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from actors.scheduler.evaluation import EvaluationAttempt
from protocol.events import JsonValue

Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class PassRateEstimate:
    """``n`` counts attempts, ``tasks`` tasks; a single task has no ``stderr``."""

    pass_at_1: float
    stderr: float | None
    n: int
    tasks: int


@dataclass(frozen=True, slots=True)
class OnlineEvaluationScore:
    """Of an evaluation beside training."""

    step: int
    """Of the weights."""
    score: PassRateEstimate


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    difference: float
    stderr: float | None
    ci95: tuple[float, float] | None


def task_means(attempts: Iterable[EvaluationAttempt], *, greedy: bool = False) -> dict[str, float]:
    """Task → share of its sampled (or greedy) attempts that passed."""
    passed: dict[str, list[bool]] = defaultdict(list)
    for attempt in attempts:
        if attempt.greedy == greedy:
            passed[attempt.task].append(attempt.passed)
    return {task: sum(each) / len(each) for task, each in passed.items()}


def score_attempts(attempts: Sequence[EvaluationAttempt], *, greedy: bool = False) -> PassRateEstimate:
    means = list(task_means(attempts, greedy=greedy).values())
    mean, stderr = _mean_and_error(means)
    return PassRateEstimate(mean, stderr, sum(attempt.greedy == greedy for attempt in attempts), len(means))


def compare_attempts(before: Sequence[EvaluationAttempt], after: Sequence[EvaluationAttempt]) -> ScoreDifference:
    """After − before over the tasks that both have."""
    first, second = task_means(before), task_means(after)
    mean, stderr = _mean_and_error([second[task] - first[task] for task in first if task in second])
    return ScoreDifference(mean, stderr, None if stderr is None else (mean - Z95 * stderr, mean + Z95 * stderr))


def round_score(value: float | None) -> float | None:
    """As summaries tell it."""
    return None if value is None else round(value, 4)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    mean = sum(values) / len(values) if values else 0.0
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def group_by_family(attempts: Iterable[EvaluationAttempt]) -> dict[str, list[EvaluationAttempt]]:
    families: dict[str, list[EvaluationAttempt]] = defaultdict(list)
    for attempt in attempts:
        families[attempt.family].append(attempt)
    return dict(sorted(families.items()))


def drop_held_out_families(attempts: Iterable[EvaluationAttempt], held_out: Collection[str]) -> list[EvaluationAttempt]:
    """The attempts of families that were trained."""
    return [attempt for attempt in attempts if attempt.family not in held_out]


def evaluation_headline(attempts: Sequence[EvaluationAttempt], held_out: Collection[str]) -> dict[str, JsonValue]:
    """What is told of an evaluation: of the families that were trained."""
    counted = drop_held_out_families(attempts, held_out)
    sampled = score_attempts(counted)
    return {
        "pass_at_1": round(sampled.pass_at_1, 4),
        "stderr": round_score(sampled.stderr),
        "n": sampled.n,
        "tasks": len({attempt.task for attempt in counted}),
        "greedy": round(score_attempts(counted, greedy=True).pass_at_1, 4),
    }


def family_table(
    evaluations: Mapping[str, Sequence[EvaluationAttempt]], held_out: Collection[str]
) -> dict[str, JsonValue]:
    """Family → for each evaluation pass@1, its error, n and greedy pass rate; with two, the paired difference."""
    table: dict[str, JsonValue] = {}
    split = {name: group_by_family(attempts) for name, attempts in evaluations.items()}
    for family in sorted({family for families in split.values() for family in families}):
        row: dict[str, JsonValue] = {"held_out": family in held_out}
        for name, families in split.items():
            sampled = score_attempts(families.get(family, []))
            row[name] = {
                "pass_at_1": round(sampled.pass_at_1, 4),
                "stderr": round_score(sampled.stderr),
                "n": sampled.n,
                "greedy": round(score_attempts(families.get(family, []), greedy=True).pass_at_1, 4),
            }
        if {"before", "after"} <= split.keys():
            change = compare_attempts(split["before"].get(family, []), split["after"].get(family, []))
            row["difference"], row["difference_stderr"] = round(change.difference, 4), round_score(change.stderr)
        table[family] = row
    return table
