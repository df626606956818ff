"""What evaluations say: pass@1, standard errors, differences.  Pure.

pass@1 is the mean over tasks of the share of sampled attempts that passed.  Attempts at one task are not independent,
so the standard error is that of the task means: sd(task means) ÷ √tasks.  A difference is paired by task.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from actors.evaluation import Attempt
from protocol.events import Json

Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Score:
    """``n`` counts attempts, ``tasks`` tasks; a single task has no ``stderr``."""

    pass_at_1: float
    stderr: float | None
    n: int
    tasks: int


@dataclass(frozen=True, slots=True)
class ExamScore:
    """Of an evaluation beside training."""

    step: int
    """Of the weights."""
    score: Score


@dataclass(frozen=True, slots=True)
class Comparison:
    difference: float
    stderr: float | None
    ci95: tuple[float, float] | None


def task_means(attempts: Iterable[Attempt], *, greedy: bool = False) -> dict[str, float]:
    """Task → share of its sampled (or greedy) attempts that passed."""
    passed: dict[str, list[bool]] = defaultdict(list)
    for attempt in attempts:
        if attempt.greedy == greedy:
            passed[attempt.task].append(attempt.passed)
    return {task: sum(each) / len(each) for task, each in passed.items()}


def score(attempts: Sequence[Attempt], *, greedy: bool = False) -> Score:
    means = list(task_means(attempts, greedy=greedy).values())
    mean, stderr = _mean_and_error(means)
    return Score(mean, stderr, sum(attempt.greedy == greedy for attempt in attempts), len(means))


def compare(before: Sequence[Attempt], after: Sequence[Attempt]) -> Comparison:
    """After − before over the tasks that both have."""
    first, second = task_means(before), task_means(after)
    mean, stderr = _mean_and_error([second[task] - first[task] for task in first if task in second])
    return Comparison(mean, stderr, None if stderr is None else (mean - Z95 * stderr, mean + Z95 * stderr))


def rounded(value: float | None) -> float | None:
    """As summaries tell it."""
    return None if value is None else round(value, 4)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    mean = sum(values) / len(values) if values else 0.0
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def by_family(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    families: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        families[attempt.family].append(attempt)
    return dict(sorted(families.items()))


def trained(attempts: Iterable[Attempt], held_out: Collection[str]) -> list[Attempt]:
    """The attempts of families that were trained."""
    return [attempt for attempt in attempts if attempt.family not in held_out]


def headline(attempts: Sequence[Attempt], held_out: Collection[str]) -> dict[str, Json]:
    """What is told of an evaluation: of the families that were trained."""
    counted = trained(attempts, held_out)
    sampled = score(counted)
    return {
        "pass_at_1": round(sampled.pass_at_1, 4),
        "stderr": rounded(sampled.stderr),
        "n": sampled.n,
        "tasks": len({attempt.task for attempt in counted}),
        "greedy": round(score(counted, greedy=True).pass_at_1, 4),
    }


def family_table(evaluations: Mapping[str, Sequence[Attempt]], held_out: Collection[str]) -> dict[str, Json]:
    """Family → for each evaluation pass@1, its error, n and greedy pass rate; with two, the paired difference."""
    table: dict[str, Json] = {}
    split = {name: by_family(attempts) for name, attempts in evaluations.items()}
    for family in sorted({family for families in split.values() for family in families}):
        row: dict[str, Json] = {"held_out": family in held_out}
        for name, families in split.items():
            sampled = score(families.get(family, []))
            row[name] = {
                "pass_at_1": round(sampled.pass_at_1, 4),
                "stderr": rounded(sampled.stderr),
                "n": sampled.n,
                "greedy": round(score(families.get(family, []), greedy=True).pass_at_1, 4),
            }
        if {"before", "after"} <= split.keys():
            change = compare(split["before"].get(family, []), split["after"].get(family, []))
            row["difference"], row["difference_stderr"] = round(change.difference, 4), rounded(change.stderr)
        table[family] = row
    return table
