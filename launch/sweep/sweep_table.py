"""Results of a sweep: a row per point, means over seeds, and both as text, CSV, JSON and a page.  Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar, cast

from launch.config.command_line import format_overrides
from launch.evaluation.results.csv_tables import render_csv
from launch.pages.html_document import PageHeader, PageSection, html_document, html_section, html_table
from launch.sweep.definition import Settings, Sweep, SweepPoint
from protocol.events import JsonValue

_DECIMALS = 4
S = TypeVar("S")


class PointState(StrEnum):
    PLANNED = "planned"
    INTERRUPTED = "interrupted"
    """Started, to be continued."""
    FAILED = "failed"
    """Failed in this command, or ended with failed checks."""
    ENDED = "ended"


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
    advice: str = "repeat the command to continue it"
    """Next step after a failure."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """Column's key → value, if known."""
    commit: str = ""
    """Commit of the code that ran the point."""


def measure(metrics: Mapping[ResultColumn, Callable[[S], float | None]], summary: S) -> dict[str, float]:
    """Return column's key → value of the metrics that ``summary`` has, rounded to four decimals."""
    values = {column.key: read(summary) for column, read in metrics.items()}
    return {key: round(value, _DECIMALS) for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SeedStatistics:
    mean: float
    std: float | None
    """Standard deviation of the sample; None of a single value."""
    n: int


@dataclass(frozen=True, slots=True)
class SeedAverage:
    """The points that differ only in their seed."""

    axes: Mapping[str, str]
    """Those of the points, without the seed's."""
    ended: int
    of: int
    values: Mapping[str, SeedStatistics]
    """Column's key → statistics of the known values, if there are any."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    sweep: Sweep
    columns: Sequence[ResultColumn]
    results: Mapping[str, PointResult]
    """Point's name → its result."""

    @property
    def rows(self) -> list[tuple[SweepPoint, PointResult]]:
        return [(point, self.results[point.name]) for point in self.sweep.points]

    @property
    def averages(self) -> list[SeedAverage]:
        """Averages over seeds in the order of the points; none without an axis of seeds."""
        groups: dict[tuple[tuple[str, str], ...], list[PointResult]] = {}
        for point, result in self.rows if self.sweep.seed_axis else ():
            axes = tuple((name, value) for name, value in point.axes.items() if name != self.sweep.seed_axis)
            groups.setdefault(axes, []).append(result)
        return [_average(dict(axes), results) for axes, results in groups.items()]

    def names_of(self, state: PointState) -> list[str]:
        return [name for name, result in self.results.items() if result.state is state]

    @property
    def missed(self) -> list[str]:
        """Names of the points that have ended below the goal, or without its metric."""
        found = {name: self.results[name].values for name in self.names_of(PointState.ENDED)}
        goal = self.sweep.goal.items()
        return [
            name for name, values in found.items() if any(values.get(key, -math.inf) < least for key, least in goal)
        ]

    def succeeded(self, points: Sequence[SweepPoint]) -> bool:
        """Return whether these have ended and none missed the goal."""
        return {point.name for point in points} <= {*self.names_of(PointState.ENDED)} - {*self.missed}

    @property
    def verdict(self) -> str:
        ended, failed = len(self.names_of(PointState.ENDED)), len(self.names_of(PointState.FAILED))
        notes = [f"{failed} failed"] * bool(failed) + [f"goal missed by {len(self.missed)}"] * bool(self.missed)
        return ", ".join([f"{ended} of {len(self.results)} points", *notes])


def _average(axes: Mapping[str, str], results: Sequence[PointResult]) -> SeedAverage:
    known: dict[str, list[float]] = {}
    for key, value in (item for result in results for item in result.values.items()):
        known.setdefault(key, []).append(value)
    statistics = {
        key: SeedStatistics(
            round(fmean(values), _DECIMALS), round(stdev(values), _DECIMALS) if len(values) > 1 else None, len(values)
        )
        for key, values in known.items()
    }
    return SeedAverage(axes, sum(each.state is PointState.ENDED for each in results), len(results), statistics)


def plan_rows(table: SweepTable) -> list[list[str]]:
    """Return the head and a row per point: its name, its state and the values that it sets."""
    rows = [[point.name, result.state, " ".join(format_overrides(point.settings))] for point, result in table.rows]
    return [["point", "state", "settings"], *rows]


def point_rows(table: SweepTable) -> list[list[str]]:
    """Return the head and a row per point."""
    columns = table.columns
    rows = [
        [point.name, *(column.format_value(result.values.get(column.key)) for column in columns), result.state]
        for point, result in table.rows
    ]
    return [["point", *(column.title for column in columns), "state"], *rows]


def average_rows(table: SweepTable) -> list[list[str]]:
    """Return the head and a row per average, mean ± standard deviation; nothing without an axis of seeds."""
    columns = table.columns
    rows = [
        [
            " ".join(each.axes.values()) or "all",
            f"{each.ended} of {each.of}",
            *(_format_statistics(column, each.values.get(column.key)) for column in columns),
        ]
        for each in table.averages
    ]
    return [["over seeds", "seeds", *(column.title for column in columns)], *rows] if rows else []


def _format_statistics(column: ResultColumn, found: SeedStatistics | None) -> str:
    mean = column.format_value(found.mean if found else None)
    return mean if found is None or found.std is None else f"{mean} ± {column.format_value(found.std).lstrip('+')}"


def table_as_csv(table: SweepTable) -> str:
    """Return a line per point."""
    keys = [column.key for column in table.columns]
    return render_csv(
        ["point", *table.sweep.points[0].axes, "state", *keys, "commit", "why"],
        [
            [point.name, *point.axes.values(), result.state, *map(result.values.get, keys), result.commit, result.why]
            for point, result in table.rows
        ],
    )


def table_as_json(table: SweepTable) -> dict[str, JsonValue]:
    """Return the sweep, its points and its averages; a value that is not known is None."""
    sweep, unknown = table.sweep, dict.fromkeys(column.key for column in table.columns)
    found = {
        "sweep": sweep.folder.name,
        **asdict(sweep),
        "folder": str(sweep.folder),
        "ok": table.succeeded(sweep.points),
        "complete": len(table.names_of(PointState.ENDED)) == len(table.rows),
        "missed": table.missed,
        "points": [
            {**asdict(point), **asdict(result), "values": {**unknown, **result.values}, "folder": str(point.folder)}
            for point, result in table.rows
        ],
        "over_seeds": [asdict(average) for average in table.averages],
    }
    return cast("dict[str, JsonValue]", found)


def render_sweep_page(table: SweepTable) -> str:
    """Return report.html, one file that needs no network."""
    sweep, sections = table.sweep, list[PageSection]()
    if sweep.goal:
        goal = ", ".join(f"{key} ≥ {least:g}" for key, least in sweep.goal.items())
        missed = f"missed by {', '.join(table.missed)}" if table.missed else "no point misses it"
        sections.append(PageSection("Goal", f"<p>{escape(f'{goal}: {missed}')}</p>", "for every point"))
    if averages := average_rows(table):
        note = "Mean ± standard deviation over the points that differ only in their seed."
        sections.append(PageSection("Over seeds", html_table(averages[0], averages[1:]), note))
    head, *rows = point_rows(table)
    sections.append(PageSection("Points", html_table(head, rows)))
    if failed := [(name, table.results[name].why) for name in table.names_of(PointState.FAILED)]:
        sections.append(PageSection("Failed", html_table(("point", "why"), failed)))
    settings: list[tuple[str, Settings]] = [
        ("every point", sweep.common),
        *((point.name, point.settings) for point in sweep.points),
    ]
    assignments = [(name, ", ".join(format_overrides(each))) for name, each in settings if each]
    sections.append(PageSection("Configuration", html_table(("point", "keys"), assignments)))
    facts, kind = f"<span>{escape(sweep.about or sweep.recipe)}</span>", "" if table.succeeded(sweep.points) else "warn"
    header = PageHeader(sweep.folder.name, "sweep", facts, table.verdict, kind)
    return html_document(header, "\n".join(map(html_section, sections)))
