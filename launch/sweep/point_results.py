"""What points came to, as figures that can be set side by side, and their means over seeds.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launch.sweep.axes import SweepPoint


class PointState(StrEnum):
    PLANNED = "planned"
    BROKEN_OFF = "broken off"
    """Begun, and to be gone on with."""
    FAILED = "failed"
    """Tried by this command, or ended without holding what it should."""
    ENDED = "ended"


class FigureFormat(StrEnum):
    """How a figure is written."""

    SHARE = "share"
    CHANGE = "change"
    COUNT = "count"
    NUMBER = "number"


class ResultColumn(NamedTuple):
    key: str
    title: str
    format: FigureFormat

    def format_value(self, value: float | None) -> str:
        if value is None:
            return "–"
        match self.format:
            case FigureFormat.SHARE:
                return f"{value:.3f}"
            case FigureFormat.CHANGE:
                return f"{value:+.3f}"
            case FigureFormat.COUNT:
                return f"{value:,.0f}"
            case FigureFormat.NUMBER:
                return f"{value:.2f}"


@dataclass(frozen=True, slots=True)
class PointResult:
    """What a point has come to."""

    state: PointState
    why: str = ""
    """One line, of one that failed."""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Column's key → value; what is not known is not there."""
    commit: str = ""
    """Of the code that ran it last."""
    before_of: str = ""
    """The run whose evaluation before training counts for this one too."""


@dataclass(frozen=True, slots=True)
class PointRow:
    point: SweepPoint
    result: PointResult


@dataclass(frozen=True, slots=True)
class SeedStatistics:
    mean: float
    std: float | None
    """Of the sample; None of a single value."""
    n: int

    @staticmethod
    def from_values(values: Sequence[float]) -> SeedStatistics | None:
        """None of nothing."""
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return SeedStatistics(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return SeedStatistics(mean, math.sqrt(variance), len(values))


@dataclass(frozen=True, slots=True)
class SeedAverage:
    """The points that differ in their seed alone."""

    at: Mapping[str, str]
    """Axis → the choice, without the seed's."""
    ended: int
    of: int
    spreads: Mapping[str, SeedStatistics]
    """Column's key → over the points that have the figure."""


def average_over_seeds(rows: Sequence[PointRow], axis: str, columns: Sequence[ResultColumn]) -> list[SeedAverage]:
    """In the order of the first of each; none where ``axis``, that of the seeds, is empty."""
    together: dict[tuple[tuple[str, str], ...], list[PointRow]] = {}
    for row in rows if axis else ():
        together.setdefault(tuple((name, at) for name, at in row.point.at.items() if name != axis), []).append(row)
    return [
        SeedAverage(
            dict(at),
            sum(row.result.state is PointState.ENDED for row in each),
            len(each),
            {
                column.key: spread
                for column in columns
                if (
                    spread := SeedStatistics.from_values(
                        [v for row in each if (v := row.result.figures.get(column.key)) is not None]
                    )
                )
            },
        )
        for at, each in together.items()
    ]


@dataclass(frozen=True, slots=True)
class GoalResult:
    """What each point was to come to, and which did."""

    least: Mapping[str, float]
    """Column's key → value."""
    met: tuple[str, ...]
    missed: tuple[str, ...]
    """Names of points that have the figures, but not so high, or that have ended without them."""


def check_goal(rows: Sequence[PointRow], least: Mapping[str, float]) -> GoalResult:
    """Points that lack a figure and have not ended are neither."""
    known = [
        row
        for row in rows
        if least and (row.result.state is PointState.ENDED or least.keys() <= row.result.figures.keys())
    ]
    met = [all(row.result.figures.get(key, -math.inf) >= value for key, value in least.items()) for row in known]
    names = [row.point.name for row in known]
    return GoalResult(
        dict(least),
        tuple(name for name, held in zip(names, met, strict=True) if held),
        tuple(name for name, held in zip(names, met, strict=True) if not held),
    )
