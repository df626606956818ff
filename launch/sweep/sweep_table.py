"""What a sweep came to, as sweep.csv, sweep.md, summary.json and lines for a person.  Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from launch.sweep.axes import SweepPoint
from launch.sweep.definition import Sweep
from launch.sweep.point_results import (
    GoalResult,
    PointRow,
    PointState,
    ResultColumn,
    SeedAverage,
    SeedStatistics,
    average_over_seeds,
    check_goal,
)
from protocol.events import JsonValue


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All that is known of a sweep."""

    sweep: Sweep
    columns: Sequence[ResultColumn]
    rows: Sequence[PointRow]
    machine: str
    """On which the table was made."""

    @property
    def averages(self) -> list[SeedAverage]:
        return average_over_seeds(self.rows, self.sweep.seed_axis, self.columns)

    @property
    def goal(self) -> GoalResult:
        return check_goal(self.rows, self.sweep.goal)

    @property
    def commits(self) -> list[str]:
        return sorted({row.result.commit for row in self.rows} - {""})

    def count_state(self, state: PointState) -> int:
        return sum(row.result.state is state for row in self.rows)

    @property
    def verdict(self) -> str:
        failed, ended = self.count_state(PointState.FAILED), self.count_state(PointState.ENDED)
        told = f"{ended} of {len(self.rows)} points" + (f", {failed} failed" if failed else "")
        return f"{told}, the goal missed by {len(self.goal.missed)}" if self.goal.missed else told

    @property
    def holds(self) -> bool:
        """Every point has ended, and none missed the goal."""
        return self.count_state(PointState.ENDED) == len(self.rows) and not self.goal.missed


def table_as_csv(table: SweepTable) -> str:
    """A line for each point."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    axes = [axis.name for axis in table.sweep.axes]
    writer.writerow(["point", *axes, "state", *(column.key for column in table.columns), "commit", "why"])
    for row in table.rows:
        figures = [row.result.figures.get(column.key) for column in table.columns]
        at = [row.point.at[name] for name in axes]
        writer.writerow([row.point.name, *at, row.result.state, *figures, row.result.commit, row.result.why])
    return out.getvalue()


def table_as_markdown(table: SweepTable) -> str:
    """The tables, with machine and commit, for a page of documentation."""
    parts = [_markdown(*rows) for rows in (average_rows(table), point_rows(table)) if rows[1]]
    commits = ", ".join(each[:7] for each in table.commits) or "unknown"
    return "\n\n".join([f"`longshore sweep {table.sweep.name}`, commit {commits}, on {table.machine}.", *parts]) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---", *["--:"] * (len(head) - 1)], *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_as_json(table: SweepTable, place: Callable[[SweepPoint], Path]) -> dict[str, JsonValue]:
    """``place``: a point's folder."""
    return {
        "sweep": table.sweep.name,
        "kind": table.sweep.kind.value,
        "recipe": table.sweep.recipe,
        "common": cast("JsonValue", dict(table.sweep.common)),
        "ok": table.holds,
        "complete": table.count_state(PointState.ENDED) == len(table.rows),
        "points": [
            {
                "name": row.point.name,
                "axes": cast("JsonValue", dict(row.point.at)),
                "set": cast("JsonValue", dict(row.point.values)),
                "state": row.result.state.value,
                "why": row.result.why,
                "figures": {column.key: _rounded(row.result.figures.get(column.key)) for column in table.columns},
                "commit": row.result.commit,
                "before_of": row.result.before_of,
                "folder": str(place(row.point)),
            }
            for row in table.rows
        ],
        "over_seeds": [
            {
                "axes": cast("JsonValue", dict(each.at)),
                "ended": each.ended,
                "of": each.of,
                "figures": {key: _spread(spread) for key, spread in each.spreads.items()},
            }
            for each in table.averages
        ],
        "goal": cast("JsonValue", asdict(table.goal)) if table.sweep.goal else None,
        "machine": table.machine,
        "commits": cast("JsonValue", table.commits),
    }


def point_rows(table: SweepTable) -> tuple[list[str], list[list[str]]]:
    """Head and rows: point × figures."""
    head = ["point", *(column.title for column in table.columns), "state"]
    return head, [
        [
            row.point.name,
            *(column.format_value(row.result.figures.get(column.key)) for column in table.columns),
            row.result.state.value,
        ]
        for row in table.rows
    ]


def average_rows(table: SweepTable) -> tuple[list[str], list[list[str]]]:
    """Head and rows: mean ± standard deviation over seeds."""
    head = ["over seeds", "seeds", *(column.title for column in table.columns)]
    return head, [
        [
            " ".join(each.at.values()) or "all",
            f"{each.ended} of {each.of}",
            *(_shown(column, each.spreads.get(column.key)) for column in table.columns),
        ]
        for each in table.averages
    ]


def align_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as they need, the first to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *rows)
    ]


def _shown(column: ResultColumn, spread: SeedStatistics | None) -> str:
    if spread is None:
        return "–"
    return column.format_value(spread.mean) + (
        "" if spread.std is None else f" ± {column.format_value(spread.std).lstrip('+')}"
    )


def _spread(spread: SeedStatistics) -> JsonValue:
    return {"mean": _rounded(spread.mean), "std": _rounded(spread.std), "n": spread.n}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
