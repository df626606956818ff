"""Results of a sweep: a row per point, means over seeds, and both as text, CSV, JSON and a page.  Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple, cast

from launch.pages.html_document import PageHeader, PageSection, html_document, html_section, html_table
from launch.sweep.axes import SweepPoint, format_assignments
from launch.sweep.definition import Sweep
from launch.sweep.sweep_folder import describe_point, describe_sweep, point_folder
from protocol.events import JsonValue


class PointState(StrEnum):
    PLANNED = "planned"
    INTERRUPTED = "interrupted"
    """Started, to be continued."""
    FAILED = "failed"
    """Failed in this command, or ended with failed checks."""
    ENDED = "ended"


TO_RUN = {PointState.PLANNED, PointState.INTERRUPTED}


class ResultColumn(NamedTuple):
    key: str
    title: str
    format: str
    """Format specification of the value."""

    def format_value(self, value: float | None) -> str:
        return "–" if value is None else format(value, self.format)


@dataclass(frozen=True, slots=True)
class PointResult:
    state: PointState
    why: str = ""
    """Reason of a failure, one line."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """Column's key → value, if known."""
    commit: str = ""
    """Commit of the code that ran the point."""


@dataclass(frozen=True, slots=True)
class SeedAverage:
    """The points that differ only in their seed."""

    at: Mapping[str, str]
    """Axis → the choice, without the seed's."""
    rows: Sequence[tuple[SweepPoint, PointResult]]

    @property
    def ended(self) -> int:
        return sum(result.state is PointState.ENDED for _, result in self.rows)

    def values(self, key: str) -> list[float]:
        """Return the known values of a column."""
        return [result.values[key] for _, result in self.rows if key in result.values]

    def statistics(self, key: str) -> dict[str, JsonValue] | None:
        """Return mean, standard deviation of the sample, and number of values."""
        values = self.values(key)
        std = round(stdev(values), 4) if len(values) > 1 else None
        return {"mean": round(fmean(values), 4), "std": std, "n": len(values)} if values else None


@dataclass(frozen=True, slots=True)
class SweepTable:
    sweep: Sweep
    folder: Path
    columns: Sequence[ResultColumn]
    rows: Sequence[tuple[SweepPoint, PointResult]]

    @property
    def averages(self) -> list[SeedAverage]:
        """Averages over seeds in the order of the points; none without an axis of seeds."""
        groups: dict[tuple[tuple[str, str], ...], list[tuple[SweepPoint, PointResult]]] = {}
        for point, result in self.rows if self.sweep.seed_axis else ():
            key = tuple((name, at) for name, at in point.at.items() if name != self.sweep.seed_axis)
            groups.setdefault(key, []).append((point, result))
        return [SeedAverage(dict(at), rows) for at, rows in groups.items()]

    @property
    def missed(self) -> list[str]:
        """Names of points that miss the goal: they are below it, or have ended without its metric."""
        goal = self.sweep.goal
        return [
            point.name
            for point, result in self.rows
            if (result.state is PointState.ENDED or goal.keys() <= result.values.keys())
            and any(result.values.get(key, -math.inf) < minimum for key, minimum in goal.items())
        ]

    def count_state(self, state: PointState) -> int:
        return sum(result.state is state for _, result in self.rows)

    def succeeded(self, points: Sequence[SweepPoint]) -> bool:
        """Return whether these have ended and none missed the goal."""
        ended = {point.name for point, result in self.rows if result.state is PointState.ENDED}
        return {point.name for point in points} <= ended - {*self.missed}

    @property
    def ok(self) -> bool:
        return self.succeeded(self.sweep.points)

    @property
    def verdict(self) -> str:
        ended, failed = self.count_state(PointState.ENDED), self.count_state(PointState.FAILED)
        parts = [f"{ended} of {len(self.rows)} points", f"{failed} failed" if failed else ""]
        return ", ".join([each for each in parts if each] + [f"goal missed by {len(self.missed)}"] * bool(self.missed))


def point_rows(table: SweepTable) -> list[list[str]]:
    """Return the head and a row per point."""
    head = ["point", *(column.title for column in table.columns), "state"]
    rows = [
        [point.name, *(column.format_value(result.values.get(column.key)) for column in table.columns), result.state]
        for point, result in table.rows
    ]
    return [head, *rows]


def average_rows(table: SweepTable) -> list[list[str]]:
    """Return the head and a row per average, mean ± standard deviation; nothing without an axis of seeds."""
    head = ["over seeds", "seeds", *(column.title for column in table.columns)]
    rows = [
        [
            " ".join(each.at.values()) or "all",
            f"{each.ended} of {len(each.rows)}",
            *(_format_average(column, each.values(column.key)) for column in table.columns),
        ]
        for each in table.averages
    ]
    return [head, *rows] if rows else []


def _format_average(column: ResultColumn, values: Sequence[float]) -> str:
    if len(values) < 2:
        return column.format_value(values[0] if values else None)
    return f"{column.format_value(fmean(values))} ± {column.format_value(stdev(values)).lstrip('+')}"


def table_as_csv(table: SweepTable) -> str:
    """Return a line per point."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    axes, keys = [axis.name for axis in table.sweep.axes], [column.key for column in table.columns]
    writer.writerow(["point", *axes, "state", *keys, "commit", "why"])
    for point, result in table.rows:
        values = [result.values.get(key) for key in keys]
        writer.writerow(
            [point.name, *(point.at[axis] for axis in axes), result.state, *values, result.commit, result.why]
        )
    return out.getvalue()


def table_as_json(table: SweepTable) -> dict[str, JsonValue]:
    def values(result: PointResult) -> dict[str, JsonValue]:
        known = {column.key: result.values.get(column.key) for column in table.columns}
        return {key: None if value is None else round(value, 4) for key, value in known.items()}

    return {
        **describe_sweep(table.sweep),
        "ok": table.ok,
        "complete": table.count_state(PointState.ENDED) == len(table.rows),
        "missed": cast("JsonValue", table.missed),
        "points": [
            {
                **describe_point(point),
                "state": result.state.value,
                "why": result.why,
                "values": values(result),
                "commit": result.commit,
                "folder": str(point_folder(table.folder, table.sweep.kind, point)),
            }
            for point, result in table.rows
        ],
        "over_seeds": [
            {
                "axes": cast("JsonValue", dict(each.at)),
                "ended": each.ended,
                "of": len(each.rows),
                "values": {
                    column.key: cast("JsonValue", known)
                    for column in table.columns
                    if (known := each.statistics(column.key))
                },
            }
            for each in table.averages
        ],
    }


def render_sweep_page(table: SweepTable) -> str:
    """Return report.html, one file that needs no network."""
    head, *rows = point_rows(table)
    sections = [PageSection("Points", html_table(head, rows))]
    if averages := average_rows(table):
        note = "Mean ± standard deviation over the points that differ only in their seed."
        sections.insert(0, PageSection("Over seeds", html_table(averages[0], averages[1:]), note))
    if table.sweep.goal:
        goal = ", ".join(f"{key} ≥ {minimum:g}" for key, minimum in table.sweep.goal.items())
        missed = f"missed by {', '.join(table.missed)}" if table.missed else "no point misses it"
        sections.insert(0, PageSection("Goal", f"<p>{escape(f'{goal}: {missed}')}</p>", "for every point"))
    if failed := [(point.name, result.why) for point, result in table.rows if result.state is PointState.FAILED]:
        sections.append(PageSection("Failed", html_table(("point", "why"), failed)))
    keys = [("every point", table.sweep.common), *((point.name, point.values) for point, _ in table.rows)]
    assignments = [(name, ", ".join(format_assignments(values))) for name, values in keys if values]
    sections.append(PageSection("Configuration", html_table(("point", "keys"), assignments)))
    facts = f"<span>{escape(table.sweep.about or table.sweep.recipe)}</span>"
    header = PageHeader(table.sweep.name, "sweep", facts, table.verdict, "" if table.ok else "warn")
    return html_document(header, "\n".join(html_section(section) for section in sections))
