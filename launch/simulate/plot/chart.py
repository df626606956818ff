"""One chart: lines or bars over a shared axis, with a legend.  Pure layout; where it is put down is the canvas's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from launch.simulate.plot.canvas import Canvas, CanvasPoint

WIDTH, HEIGHT = 540.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 74.0, 44.0
_TICKS = 4
COLOURS = ("teal", "amber", "slate", "red", "ink-2")


class Series(NamedTuple):
    label: str
    values: Sequence[float | None]
    """One for each place on the x axis."""


class ReferenceLine(NamedTuple):
    """A level to compare with."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    note: str
    """One line under the title: what is shown, in which unit."""
    places: Sequence[str]
    """Labels of the x axis."""
    x_label: str
    series: Sequence[Series]
    references: Sequence[ReferenceLine] = field(default=())
    bars: bool = False
    share: bool = False
    """Values are shares, shown as percent."""
    from_zero: bool = True


def draw_chart(chart: Chart, canvas: Canvas) -> None:
    """Put ``chart`` on ``canvas``, ``WIDTH`` × ``HEIGHT`` units from its origin."""
    plane = _Plane.of(chart)
    canvas.text(CanvasPoint(0, 14), chart.title, 15, "ink", strong=True)
    canvas.text(CanvasPoint(0, 32), chart.note, 11.5, "ink-3")
    _legend(chart, canvas)
    _grid(chart, plane, canvas)
    for number, series in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        if chart.bars:
            _bars(series, plane, canvas, colour=colour, number=number, beside=len(chart.series))
        else:
            _line(series, plane, canvas, colour)
    for reference in chart.references:
        level = plane.y(reference.value)
        canvas.line([CanvasPoint(_LEFT, level), CanvasPoint(WIDTH - _RIGHT, level)], "ink-2", 1.2, dashed=True)
        canvas.text(CanvasPoint(WIDTH - _RIGHT, level - 5), reference.label, 11, "ink-2", "end")


@dataclass(frozen=True, slots=True)
class _Plane:
    """Where values lie."""

    low: float
    high: float
    step: float
    """Between the lines of the grid."""
    places: int

    @classmethod
    def of(cls, chart: Chart) -> _Plane:
        return cls(*_scale(chart), max(1, len(chart.places)))

    @property
    def width(self) -> float:
        """Of one place."""
        return (WIDTH - _LEFT - _RIGHT) / self.places

    def x(self, place: float) -> float:
        return _LEFT + self.width * (place + 0.5)

    def y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (value - self.low) / (self.high - self.low))


def _grid(chart: Chart, plane: _Plane, canvas: Canvas) -> None:
    for number in range(round((plane.high - plane.low) / plane.step) + 1):
        value = plane.low + number * plane.step
        level = plane.y(value)
        canvas.line(
            [CanvasPoint(_LEFT, level), CanvasPoint(WIDTH - _RIGHT, level)], "line-soft" if number else "line", 1
        )
        canvas.text(CanvasPoint(_LEFT - 8, level + 4), _shown(value, plane.step, share=chart.share), 11, "ink-3", "end")
    every = max(1, math.ceil(len(chart.places) / 12))
    for place, label in enumerate(chart.places):
        if place % every == 0:
            canvas.text(CanvasPoint(plane.x(place), HEIGHT - _BOTTOM + 18), label, 11, "ink-3", "middle")
    canvas.text(CanvasPoint((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6), chart.x_label, 11, "ink-2", "middle")


def _bars(series: Series, plane: _Plane, canvas: Canvas, *, colour: str, number: int, beside: int) -> None:
    width = plane.width * 0.72 / beside
    for place, value in enumerate(series.values):
        if value:
            left, top = plane.x(place) + width * (number - beside / 2), plane.y(value)
            canvas.box(left, top, max(1.0, width - 1.5), plane.y(plane.low) - top, colour)


def _line(series: Series, plane: _Plane, canvas: Canvas, colour: str) -> None:
    points = [
        CanvasPoint(plane.x(place), plane.y(value)) for place, value in enumerate(series.values) if value is not None
    ]
    canvas.line(points, colour, 2)
    if len(points) <= 16:
        for point in points:
            canvas.dot(point, 3, colour)


def _legend(chart: Chart, canvas: Canvas) -> None:
    if len(chart.series) < 2 and not chart.series[0].label:
        return
    left = 0.0
    for number, series in enumerate(chart.series):
        canvas.box(left, 44, 10, 10, COLOURS[number % len(COLOURS)])
        canvas.text(CanvasPoint(left + 15, 53.5), series.label, 11.5, "ink-2")
        left += 15 + 6.6 * len(series.label) + 16


def _scale(chart: Chart) -> tuple[float, float, float]:
    """Lowest and highest level, and the distance of the grid's lines."""
    values = [value for series in chart.series for value in series.values if value is not None]
    values += [reference.value for reference in chart.references]
    low = 0.0 if chart.from_zero else min(values, default=0.0)
    high = max(values, default=1.0)
    if high <= low:
        high = low + 1.0
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    return math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step, step


def _shown(value: float, step: float, *, share: bool) -> str:
    if share:
        return f"{value * 100:.{0 if step >= 0.01 else 1}f} %"
    if value >= 10_000 and step >= 1000:
        return f"{value / 1000:g} k"
    return f"{value:g}"
