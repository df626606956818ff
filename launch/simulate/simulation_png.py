"""Draws a simulation's charts as one PNG, for places that cannot show a page.

It is drawn larger than it is saved, so that lines are smooth, with the font inside Pillow, so that a picture looks the
same on every machine; characters that the font lacks are spelt out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from launch.pages.charts import Chart, Series

WIDTH, HEIGHT = 540.0, 300.0
"""Size of one chart, in units of the picture."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 74.0, 44.0
_MARGIN, _GAP, _HEAD, _PADDING = 28.0, 20.0, 64.0, 20.0
_COLUMNS = 2
_TICKS = 4
_SCALE = 2
"""Pixels of the file for each unit."""
_SMOOTH = 2
"""Drawn pixels for each pixel of the file."""
_SPELT = {"×": "x", "–": "-", "÷": "/", "≥": ">=", "≤": "<=", " = ": " "}
_COLOURS = {
    "panel": "#ffffff",
    "paper": "#f5f6f4",
    "line": "#e0e4e0",
    "line-soft": "#ebeeeb",
    "ink": "#15211f",
    "ink-2": "#4c5b58",
    "ink-3": "#6b7976",
    "teal": "#0b7d74",
    "slate": "#7d8cab",
    "amber": "#a86808",
    "red": "#b83a26",
    "violet": "#7b5ea7",
}
"""The light palette of ``static/tokens.css``."""
_HUES = ("teal", "slate", "amber", "red", "violet")
_Anchor = Literal["ls", "ms", "rs"]


class _Point(NamedTuple):
    x: float
    y: float


def save_png(title: str, about: str, charts: Sequence[Chart], path: Path) -> None:
    """Write the charts in two columns under a title."""
    lines = -(-len(charts) // _COLUMNS)
    panel_w, panel_h = WIDTH + 2 * _PADDING, HEIGHT + 2 * _PADDING
    width = 2 * _MARGIN + _COLUMNS * panel_w + (_COLUMNS - 1) * _GAP
    canvas = _Canvas(width, 2 * _MARGIN + _HEAD + lines * panel_h + (lines - 1) * _GAP)
    canvas.text(_Point(_MARGIN, _MARGIN + 18), title, 20, "ink", strong=True)
    canvas.text(_Point(_MARGIN, _MARGIN + 40), about, 12.5, "ink-3")
    for number, chart in enumerate(charts):
        left = _MARGIN + (number % _COLUMNS) * (panel_w + _GAP)
        top = _MARGIN + _HEAD + (number // _COLUMNS) * (panel_h + _GAP)
        canvas.origin = _Point(left, top)
        canvas.box(0, 0, panel_w, panel_h, "panel")
        canvas.origin = _Point(left + _PADDING, top + _PADDING)
        _draw_chart(chart, canvas)
    canvas.save(path)


class _Canvas:
    """A picture in units; ``origin`` moves what is drawn, so that several charts share one picture."""

    def __init__(self, width: float, height: float) -> None:
        self._by = _SCALE * _SMOOTH
        self._size = (round(width * self._by), round(height * self._by))
        self._image = Image.new("RGB", self._size, _COLOURS["paper"])
        self._draw = ImageDraw.Draw(self._image)
        self.origin = _Point(0.0, 0.0)

    def line(self, points: Sequence[_Point], colour: str, width: float) -> None:
        placed = [self._placed(point) for point in points]
        self._draw.line(placed, _COLOURS[colour], round(width * self._by), joint="curve")

    def dashed_line(self, level: float, colour: str, width: float) -> None:
        """Draw a dashed line across the whole chart."""
        at, end = _LEFT, WIDTH - _RIGHT
        while at < end:
            self.line([_Point(at, level), _Point(min(end, at + 5), level)], colour, width)
            at += 9

    def dot(self, at: _Point, radius: float, colour: str) -> None:
        x, y = self._placed(at)
        r = radius * self._by
        self._draw.ellipse((x - r, y - r, x + r, y + r), _COLOURS[colour])

    def box(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        x, y = self._placed(_Point(left, top))
        self._draw.rectangle((x, y, x + width * self._by, y + height * self._by), _COLOURS[colour])

    def text(
        self, at: _Point, text: str, size: float, colour: str, anchor: _Anchor = "ls", *, strong: bool = False
    ) -> None:
        """Write text that is anchored at its baseline."""
        for character, spelt in _SPELT.items():
            text = text.replace(character, spelt)
        fill, stroke = _COLOURS[colour], round(0.018 * size * self._by) if strong else 0
        font = _font(round(size * self._by))
        self._draw.text(self._placed(at), text, fill, font, anchor, stroke_width=stroke, stroke_fill=fill)

    def save(self, path: Path) -> None:
        width, height = self._size
        self._image.resize((width // _SMOOTH, height // _SMOOTH), Image.Resampling.LANCZOS).save(path)

    def _placed(self, point: _Point) -> tuple[float, float]:
        return (point.x + self.origin.x) * self._by, (point.y + self.origin.y) * self._by


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


@dataclass(frozen=True, slots=True)
class _Plane:
    """The mapping from values to positions in a chart."""

    low: float
    high: float
    step: float
    """Distance between two lines of the grid."""
    places: int

    @property
    def place_width(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / self.places

    def x(self, place: float) -> float:
        return _LEFT + self.place_width * (place + 0.5)

    def y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (value - self.low) / (self.high - self.low))


def _draw_chart(chart: Chart, canvas: _Canvas) -> None:
    plane = _plane(chart)
    canvas.text(_Point(0, 14), chart.title, 15, "ink", strong=True)
    canvas.text(_Point(0, 32), chart.note, 11.5, "ink-3")
    _draw_legend(chart, canvas)
    _draw_grid(chart, plane, canvas)
    for number, series in enumerate(chart.series):
        colour = _HUES[number % len(_HUES)]
        if chart.bars:
            _draw_bars(series, plane, canvas, colour=colour, number=number, count=len(chart.series))
        else:
            _draw_line(series, plane, canvas, colour)
    for reference in chart.references:
        level = plane.y(reference.value)
        canvas.dashed_line(level, "ink-2", 1.2)
        canvas.text(_Point(WIDTH - _RIGHT, level - 5), reference.label, 11, "ink-2", "rs")


def _plane(chart: Chart) -> _Plane:
    values = [value for series in chart.series for value in series.values if value is not None]
    values += [reference.value for reference in chart.references]
    low = 0.0 if chart.from_zero else min(values, default=0.0)
    high = max(values, default=1.0)
    if high <= low:
        high = low + 1.0
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    places = max(1, len(chart.labels))
    return _Plane(math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step, step, places)


def _draw_grid(chart: Chart, plane: _Plane, canvas: _Canvas) -> None:
    for number in range(round((plane.high - plane.low) / plane.step) + 1):
        value = plane.low + number * plane.step
        level = plane.y(value)
        ends = [_Point(_LEFT, level), _Point(WIDTH - _RIGHT, level)]
        canvas.line(ends, "line-soft" if number else "line", 1)
        canvas.text(_Point(_LEFT - 8, level + 4), _format_tick(value, plane.step, share=chart.share), 11, "ink-3", "rs")
    every = max(1, math.ceil(len(chart.labels) / 12))
    for place, label in enumerate(chart.labels):
        if place % every == 0:
            canvas.text(_Point(plane.x(place), HEIGHT - _BOTTOM + 18), label, 11, "ink-3", "ms")
    canvas.text(_Point((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6), chart.x_label, 11, "ink-2", "ms")


def _draw_bars(series: Series, plane: _Plane, canvas: _Canvas, *, colour: str, number: int, count: int) -> None:
    width = plane.place_width * 0.72 / count
    for place, value in enumerate(series.values):
        if value:
            left, top = plane.x(place) + width * (number - count / 2), plane.y(value)
            canvas.box(left, top, max(1.0, width - 1.5), plane.y(plane.low) - top, colour)


def _draw_line(series: Series, plane: _Plane, canvas: _Canvas, colour: str) -> None:
    points = [_Point(plane.x(place), plane.y(value)) for place, value in enumerate(series.values) if value is not None]
    canvas.line(points, colour, 2)
    if len(points) <= 16:
        for point in points:
            canvas.dot(point, 3, colour)


def _draw_legend(chart: Chart, canvas: _Canvas) -> None:
    if len(chart.series) < 2 and not chart.series[0].label:
        return
    left = 0.0
    for number, series in enumerate(chart.series):
        canvas.box(left, 44, 10, 10, _HUES[number % len(_HUES)])
        canvas.text(_Point(left + 15, 53.5), series.label, 11.5, "ink-2")
        left += 15 + 6.6 * len(series.label) + 16


def _format_tick(value: float, step: float, *, share: bool) -> str:
    if share:
        return f"{value * 100:.{0 if step >= 0.01 else 1}f} %"
    if value >= 10_000 and step >= 1000:
        return f"{value / 1000:g} k"
    return f"{value:g}"
