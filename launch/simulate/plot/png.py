"""A canvas that becomes a PNG, drawn larger than it is shown so that lines are smooth.

The font is the one inside Pillow, so that a picture looks the same on every machine; letters that it lacks are spelt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from launch.simulate.plot.canvas import LIGHT, Anchor, CanvasPoint

_SCALE = 2
"""Pixels of the file for each unit."""
_SMOOTH = 2
"""Drawn pixels for each of the file."""
_SPELT = {"η": "eta", "×": "x", "–": "-", "÷": "/", "≥": ">=", "≤": "<=", " = ": " "}
_ANCHORS: dict[Anchor, str] = {"start": "ls", "middle": "ms", "end": "rs"}


class PngCanvas:
    """``origin`` moves what is drawn, so that several charts share one picture."""

    def __init__(self, width: float, height: float) -> None:
        self._by = _SCALE * _SMOOTH
        self._size = (round(width * self._by), round(height * self._by))
        self._image = Image.new("RGB", self._size, LIGHT["paper"])
        self._draw = ImageDraw.Draw(self._image)
        self.origin = CanvasPoint(0.0, 0.0)

    def line(self, points: Sequence[CanvasPoint], colour: str, width: float, *, dashed: bool = False) -> None:
        placed = [self._placed(point) for point in points]
        if not dashed:
            self._draw.line(placed, LIGHT[colour], round(width * self._by), joint="curve")
            return
        (x0, y0), (x1, y1) = placed[0], placed[-1]
        length = max(abs(x1 - x0), abs(y1 - y0))
        dash = 9 * self._by
        for start in range(0, int(length), int(dash)):
            begin, end = start / length, min(1.0, (start + dash * 0.55) / length)
            piece = [(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share) for share in (begin, end)]
            self._draw.line(piece, LIGHT[colour], round(width * self._by))

    def dot(self, at: CanvasPoint, radius: float, colour: str) -> None:
        x, y = self._placed(at)
        r = radius * self._by
        self._draw.ellipse((x - r, y - r, x + r, y + r), LIGHT[colour])

    def box(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        x, y = self._placed(CanvasPoint(left, top))
        self._draw.rectangle((x, y, x + width * self._by, y + height * self._by), LIGHT[colour])

    def text(
        self, at: CanvasPoint, text: str, size: float, colour: str, anchor: Anchor = "start", *, strong: bool = False
    ) -> None:
        for letter, spelt in _SPELT.items():
            text = text.replace(letter, spelt)
        font, fill = _font(round(size * self._by)), LIGHT[colour]
        stroke = round(0.018 * size * self._by) if strong else 0
        at = CanvasPoint(*self._placed(at))
        self._draw.text(at, text, fill, font, _ANCHORS[anchor], stroke_width=stroke, stroke_fill=fill)

    def save(self, path: Path) -> None:
        width, height = self._size
        self._image.resize((width // _SMOOTH, height // _SMOOTH), Image.Resampling.LANCZOS).save(path)

    def _placed(self, point: CanvasPoint) -> tuple[float, float]:
        return (point.x + self.origin.x) * self._by, (point.y + self.origin.y) * self._by


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
