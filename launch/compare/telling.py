"""How a comparison is told: as one JSON object, and as tables.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import cast

from launch.compare.comparing import Against, Comparison
from launch.compare.paired import Difference, Pair
from launch.compare.sides import Side
from launch.evaluate.pass_at_k import PassAtK, Tally, estimate
from launch.evaluate.summary import by_stage
from protocol.events import Json

MATRIX = ("evaluation", "model", "pass@1", "interval", "difference", "interval", "better", "worse", "tasks", "errors")
AT_K = ("", "first", "other", "difference", "interval", "tasks")
CHANGES = ("task", "first", "other", "difference", "p")


def told(comparison: Comparison) -> dict[str, Json]:
    return {
        "first": _side(comparison.first),
        "others": [_against(each) for each in comparison.others],
        "tasks": {
            task: {
                side.name: cast("Json", tally._asdict())
                for side in comparison.sides
                if (tally := side.tallies.get(task))
            }
            for task in _tasks(comparison)
        },
        "notices": [*comparison.notices],
    }


def _side(side: Side) -> dict[str, Json]:
    at_1 = own(side)
    return {
        "name": side.name,
        "path": str(side.path),
        "model": side.model,
        "attempts": len(side.records),
        "errors": side.errors,
        "errors_by_stage": cast("Json", by_stage([*side.records.values()])),
        "pass_at_1": cast("Json", asdict(at_1)) if at_1 else None,
    }


def _against(each: Against) -> dict[str, Json]:
    both = each.paired
    return {
        **_side(each.side),
        "tasks": len(both.pairs),
        "pass_at_k": {str(k): cast("Json", asdict(at)) for k, at in both.at_k.items()},
        "better": both.better,
        "worse": both.worse,
        "same": len(both.pairs) - both.better - both.worse,
        "changed": [_change(pair) for pair in both.changes],
        "only_first": [*both.only_first],
        "only_other": [*both.only_other],
        "notices": [*each.notices],
    }


def _change(pair: Pair) -> Json:
    return {
        "task": pair.task,
        "first": cast("Json", pair.first._asdict()),
        "other": cast("Json", pair.other._asdict()),
        "difference": pair.difference,
        "p": pair.p,
    }


def own(side: Side) -> PassAtK | None:
    """pass@1 over all of its own tasks."""
    return estimate([*side.tallies.values()], 1, 0)


def matrix(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each evaluation: its own pass@1, and how it differs from the first on the tasks of both."""
    rows = [(*_own_cells(comparison.first), *("",) * 5, str(comparison.first.errors))]
    for each in comparison.others:
        both, at_1 = each.paired, each.paired.at_k.get(1)
        paired = (*_difference_cells(at_1), str(both.better), str(both.worse), str(len(both.pairs)))
        rows.append((*_own_cells(each.side), *paired, str(each.side.errors)))
    return rows


def _own_cells(side: Side) -> tuple[str, ...]:
    at_1 = own(side)
    return (side.name, side.model, *((percent(at_1.value), between(at_1.low, at_1.high)) if at_1 else ("-", "-")))


def _difference_cells(at: Difference | None) -> tuple[str, str]:
    return (signed(at.difference), between(at.low, at.high, plus=True)) if at else ("-", "-")


def by_task(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each task, a column for each evaluation."""
    tallies = [side.tallies for side in comparison.sides]
    return [(task, *(_tally(each[task]) if task in each else "-" for each in tallies)) for task in _tasks(comparison)]


def _tasks(comparison: Comparison) -> list[str]:
    return sorted({task for side in comparison.sides for task in side.tallies})


def at_k(each: Against) -> list[tuple[str, ...]]:
    return [
        (f"pass@{k}", percent(at.first), percent(at.other), *_difference_cells(at), str(at.tasks))
        for k, at in each.paired.at_k.items()
    ]


def changes(each: Against) -> list[tuple[str, ...]]:
    return [
        (pair.task, _tally(pair.first), _tally(pair.other), signed(pair.difference), f"{pair.p:.3f}")
        for pair in each.paired.changes
    ]


def _tally(tally: Tally) -> str:
    return f"{tally.passed} of {tally.attempts}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


def between(low: float, high: float, *, plus: bool = False) -> str:
    sign = "+" if plus else ""
    return f"{100 * low:{sign}.1f} to {100 * high:{sign}.1f} %"


def lines(comparison: Comparison, most: int = 20) -> Iterator[str]:
    """For a person; of the tasks that changed the first ``most``."""
    yield from aligned([MATRIX, *matrix(comparison)], texts=2)
    yield from (f"notice: {notice}" for notice in comparison.notices)
    for each in comparison.others:
        yield ""
        yield f"{each.side.name} against {comparison.first.name}"
        yield from aligned([AT_K, *at_k(each)], texts=1)
        yield from (f"notice: {notice}" for notice in each.notices)
        if rows := changes(each):
            yield from aligned([CHANGES, *rows[:most]], texts=1)
        if len(rows) > most:
            yield f"… and {len(rows) - most} tasks more that changed: the page and --json have all"


def aligned(rows: Sequence[Sequence[str]], *, texts: int) -> list[str]:
    """Columns as wide as they need: the first ``texts`` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < texts else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
