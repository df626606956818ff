"""What a sweep came to, as sweep.csv, sweep.md, summary.json and lines for a person.  Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from launch.sweep.axes import Point
from launch.sweep.definition import Sweep
from launch.sweep.figures import Average, Column, Goal, Row, Spread, State, judged, over_seeds
from protocol.events import Json


@dataclass(frozen=True, slots=True)
class Table:
    """All that is known of a sweep."""

    sweep: Sweep
    columns: Sequence[Column]
    rows: Sequence[Row]
    machine: str
    """On which the table was made."""

    @property
    def averages(self) -> list[Average]:
        return over_seeds(self.rows, self.sweep.seed_axis, self.columns)

    @property
    def goal(self) -> Goal:
        return judged(self.rows, self.sweep.goal)

    @property
    def commits(self) -> list[str]:
        return sorted({row.outcome.commit for row in self.rows} - {""})

    def count(self, state: State) -> int:
        return sum(row.outcome.state is state for row in self.rows)

    @property
    def verdict(self) -> str:
        failed, ended = self.count(State.FAILED), self.count(State.ENDED)
        told = f"{ended} of {len(self.rows)} points" + (f", {failed} failed" if failed else "")
        return f"{told}, the goal missed by {len(self.goal.missed)}" if self.goal.missed else told

    @property
    def holds(self) -> bool:
        """Every point has ended, and none missed the goal."""
        return self.count(State.ENDED) == len(self.rows) and not self.goal.missed


def as_csv(table: Table) -> str:
    """A line for each point."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    axes = [axis.name for axis in table.sweep.axes]
    writer.writerow(["point", *axes, "state", *(column.key for column in table.columns), "commit", "why"])
    for row in table.rows:
        figures = [row.outcome.figures.get(column.key) for column in table.columns]
        at = [row.point.at[name] for name in axes]
        writer.writerow([row.point.name, *at, row.outcome.state, *figures, row.outcome.commit, row.outcome.why])
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """The tables, with machine and commit, for a page of documentation."""
    parts = [_markdown(*rows) for rows in (average_rows(table), point_rows(table)) if rows[1]]
    commits = ", ".join(each[:7] for each in table.commits) or "unknown"
    return "\n\n".join([f"`longshore sweep {table.sweep.name}`, commit {commits}, on {table.machine}.", *parts]) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---", *["--:"] * (len(head) - 1)], *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_json(table: Table, place: Callable[[Point], Path]) -> dict[str, Json]:
    """``place``: a point's folder."""
    return {
        "sweep": table.sweep.name,
        "kind": table.sweep.kind.value,
        "recipe": table.sweep.recipe,
        "common": cast("Json", dict(table.sweep.common)),
        "ok": table.holds,
        "complete": table.count(State.ENDED) == len(table.rows),
        "points": [
            {
                "name": row.point.name,
                "axes": cast("Json", dict(row.point.at)),
                "set": cast("Json", dict(row.point.values)),
                "state": row.outcome.state.value,
                "why": row.outcome.why,
                "figures": {column.key: _rounded(row.outcome.figures.get(column.key)) for column in table.columns},
                "commit": row.outcome.commit,
                "before_of": row.outcome.before_of,
                "folder": str(place(row.point)),
            }
            for row in table.rows
        ],
        "over_seeds": [
            {
                "axes": cast("Json", dict(each.at)),
                "ended": each.ended,
                "of": each.of,
                "figures": {key: _spread(spread) for key, spread in each.spreads.items()},
            }
            for each in table.averages
        ],
        "goal": cast("Json", asdict(table.goal)) if table.sweep.goal else None,
        "machine": table.machine,
        "commits": cast("Json", table.commits),
    }


def point_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """Head and rows: point × figures."""
    head = ["point", *(column.title for column in table.columns), "state"]
    return head, [
        [
            row.point.name,
            *(column.shown(row.outcome.figures.get(column.key)) for column in table.columns),
            row.outcome.state.value,
        ]
        for row in table.rows
    ]


def average_rows(table: Table) -> tuple[list[str], list[list[str]]]:
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


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as they need, the first to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *rows)
    ]


def _shown(column: Column, spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return column.shown(spread.mean) + ("" if spread.std is None else f" ± {column.shown(spread.std).lstrip('+')}")


def _spread(spread: Spread) -> Json:
    return {"mean": _rounded(spread.mean), "std": _rounded(spread.std), "n": spread.n}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
