"""Formats a comparison as a JSON object and as tables.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import cast

from launch.evaluation.comparison.compared_evaluation import ComparedEvaluation
from launch.evaluation.comparison.evaluation_comparison import EvaluationComparison, PairedEvaluation
from launch.evaluation.comparison.paired_tasks import PassAtKDifference, TaskPair
from launch.evaluation.results.evaluation_summary import count_failures_by_stage
from launch.evaluation.scores import PassAtK, TaskTally, estimate_pass_at_k
from protocol.cli.formatting import format_percent
from protocol.cli.output import align_columns
from protocol.events import JsonValue

OVERVIEW_HEAD = (
    "evaluation",
    "model",
    "pass@1",
    "interval",
    "difference",
    "interval",
    "better",
    "worse",
    "tasks",
    "errors",
)
PASS_AT_K_HEAD = ("", "first", "other", "difference", "interval", "tasks")
CHANGES_HEAD = ("task", "first", "other", "difference", "p")


def comparison_as_json(comparison: EvaluationComparison) -> dict[str, JsonValue]:
    return {
        "first": _side(comparison.first),
        "others": [_against(each) for each in comparison.others],
        "tasks": {
            task: {
                side.name: cast("JsonValue", tally._asdict())
                for side in comparison.evaluations
                if (tally := side.tallies.get(task))
            }
            for task in _tasks(comparison)
        },
        "notices": [*comparison.notices],
    }


def _side(side: ComparedEvaluation) -> dict[str, JsonValue]:
    at_1 = estimate_own_pass_at_1(side)
    return {
        "name": side.name,
        "path": str(side.path),
        "model": side.model,
        "attempts": len(side.records),
        "errors": side.errors,
        "errors_by_stage": cast("JsonValue", count_failures_by_stage([*side.records.values()])),
        "pass_at_1": cast("JsonValue", asdict(at_1)) if at_1 else None,
    }


def _against(each: PairedEvaluation) -> dict[str, JsonValue]:
    both = each.paired
    return {
        **_side(each.evaluation),
        "tasks": len(both.pairs),
        "pass_at_k": {str(k): cast("JsonValue", asdict(at)) for k, at in both.at_k.items()},
        "better": both.better,
        "worse": both.worse,
        "same": len(both.pairs) - both.better - both.worse,
        "changed": [_change(pair) for pair in both.changes],
        "only_first": [*both.only_first],
        "only_other": [*both.only_other],
        "notices": [*each.notices],
    }


def _change(pair: TaskPair) -> JsonValue:
    return {
        "task": pair.task,
        "first": cast("JsonValue", pair.first._asdict()),
        "other": cast("JsonValue", pair.other._asdict()),
        "difference": pair.difference,
        "p": pair.p,
    }


def estimate_own_pass_at_1(side: ComparedEvaluation) -> PassAtK | None:
    """Return pass@1 over all of its own tasks."""
    return estimate_pass_at_k([*side.tallies.values()], 1, 0)


def overview_rows(comparison: EvaluationComparison) -> list[tuple[str, ...]]:
    """Return a row per evaluation: its own pass@1, and its difference from the first on the tasks of both."""
    rows = [(*_own_cells(comparison.first), *("",) * 5, str(comparison.first.errors))]
    for each in comparison.others:
        both, at_1 = each.paired, each.paired.at_k.get(1)
        paired = (*_difference_cells(at_1), str(both.better), str(both.worse), str(len(both.pairs)))
        rows.append((*_own_cells(each.evaluation), *paired, str(each.evaluation.errors)))
    return rows


def _own_cells(side: ComparedEvaluation) -> tuple[str, ...]:
    at_1 = estimate_own_pass_at_1(side)
    return (
        side.name,
        side.model,
        *((format_percent(at_1.value), format_interval(at_1.low, at_1.high)) if at_1 else ("-", "-")),
    )


def _difference_cells(at: PassAtKDifference | None) -> tuple[str, str]:
    return (format_change(at.difference), format_interval(at.low, at.high, plus=True)) if at else ("-", "-")


def task_rows(comparison: EvaluationComparison) -> list[tuple[str, ...]]:
    """Return a row per task with a column per evaluation."""
    tallies = [side.tallies for side in comparison.evaluations]
    return [(task, *(_tally(each[task]) if task in each else "-" for each in tallies)) for task in _tasks(comparison)]


def _tasks(comparison: EvaluationComparison) -> list[str]:
    return sorted({task for side in comparison.evaluations for task in side.tallies})


def pass_at_k_rows(each: PairedEvaluation) -> list[tuple[str, ...]]:
    return [
        (f"pass@{k}", format_percent(at.first), format_percent(at.other), *_difference_cells(at), str(at.tasks))
        for k, at in each.paired.at_k.items()
    ]


def changed_task_rows(each: PairedEvaluation) -> list[tuple[str, ...]]:
    return [
        (pair.task, _tally(pair.first), _tally(pair.other), format_change(pair.difference), f"{pair.p:.3f}")
        for pair in each.paired.changes
    ]


def _tally(tally: TaskTally) -> str:
    return f"{tally.passed} of {tally.attempts}"


def format_change(value: float) -> str:
    return f"{100 * value:+.1f} %"


def format_interval(low: float, high: float, *, plus: bool = False) -> str:
    sign = "+" if plus else ""
    return f"{100 * low:{sign}.1f} to {100 * high:{sign}.1f} %"


def comparison_lines(comparison: EvaluationComparison, most: int = 20) -> Iterator[str]:
    """Yield the comparison as text with the first ``most`` tasks that changed."""
    yield from align_columns([OVERVIEW_HEAD, *overview_rows(comparison)], text_columns=2)
    yield from (f"notice: {notice}" for notice in comparison.notices)
    for each in comparison.others:
        yield ""
        yield f"{each.evaluation.name} against {comparison.first.name}"
        yield from align_columns([PASS_AT_K_HEAD, *pass_at_k_rows(each)])
        yield from (f"notice: {notice}" for notice in each.notices)
        if rows := changed_task_rows(each):
            yield from align_columns([CHANGES_HEAD, *rows[:most]])
        if len(rows) > most:
            yield f"… and {len(rows) - most} more tasks changed: the page and --json have all of them"
