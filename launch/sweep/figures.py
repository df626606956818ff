"""What points came to, as figures that can be set side by side, and their means over seeds.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launch.sweep.axes import Point


class State(StrEnum):
    PLANNED = "planned"
    BROKEN_OFF = "broken off"
    """Begun, and to be gone on with."""
    FAILED = "failed"
    """Tried by this command, or ended without holding what it should."""
    ENDED = "ended"


class Shape(StrEnum):
    """How a figure is written."""

    SHARE = "share"
    CHANGE = "change"
    COUNT = "count"
    NUMBER = "number"


class Column(NamedTuple):
    key: str
    title: str
    shape: Shape

    def shown(self, value: float | None) -> str:
        if value is None:
            return "–"
        match self.shape:
            case Shape.SHARE:
                return f"{value:.3f}"
            case Shape.CHANGE:
                return f"{value:+.3f}"
            case Shape.COUNT:
                return f"{value:,.0f}"
            case Shape.NUMBER:
                return f"{value:.2f}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point has come to."""

    state: State
    why: str = ""
    """One line, of one that failed."""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Column's key → value; what is not known is not there."""
    commit: str = ""
    """Of the code that ran it last."""
    before_of: str = ""
    """The run whose evaluation before training counts for this one too."""


@dataclass(frozen=True, slots=True)
class Row:
    point: Point
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    std: float | None
    """Of the sample; None of a single value."""
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """None of nothing."""
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return Spread(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return Spread(mean, math.sqrt(variance), len(values))


@dataclass(frozen=True, slots=True)
class Average:
    """The points that differ in their seed alone."""

    at: Mapping[str, str]
    """Axis → the choice, without the seed's."""
    ended: int
    of: int
    spreads: Mapping[str, Spread]
    """Column's key → over the points that have the figure."""


def over_seeds(rows: Sequence[Row], axis: str, columns: Sequence[Column]) -> list[Average]:
    """In the order of the first of each; none where ``axis``, that of the seeds, is empty."""
    together: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in rows if axis else ():
        together.setdefault(tuple((name, at) for name, at in row.point.at.items() if name != axis), []).append(row)
    return [
        Average(
            dict(at),
            sum(row.outcome.state is State.ENDED for row in each),
            len(each),
            {
                column.key: spread
                for column in columns
                if (spread := Spread.of([v for row in each if (v := row.outcome.figures.get(column.key)) is not None]))
            },
        )
        for at, each in together.items()
    ]


@dataclass(frozen=True, slots=True)
class Goal:
    """What each point was to come to, and which did."""

    least: Mapping[str, float]
    """Column's key → value."""
    met: tuple[str, ...]
    missed: tuple[str, ...]
    """Names of points that have the figures, but not so high, or that have ended without them."""


def judged(rows: Sequence[Row], least: Mapping[str, float]) -> Goal:
    """Points that lack a figure and have not ended are neither."""
    known = [
        row
        for row in rows
        if least and (row.outcome.state is State.ENDED or least.keys() <= row.outcome.figures.keys())
    ]
    met = [all(row.outcome.figures.get(key, -math.inf) >= value for key, value in least.items()) for row in known]
    names = [row.point.name for row in known]
    return Goal(
        dict(least),
        tuple(name for name, held in zip(names, met, strict=True) if held),
        tuple(name for name, held in zip(names, met, strict=True) if not held),
    )
