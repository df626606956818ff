"""A canvas that becomes an SVG element; its colours are the page's own, so that it follows light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from launch.simulate.plot.canvas import Anchor, CanvasPoint


class SvgCanvas:
    def __init__(self, width: float, height: float, label: str) -> None:
        size = f'viewBox="0 0 {width:g} {height:g}"'
        self._parts = [f'<svg {size} role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">']

    def line(self, points: Sequence[CanvasPoint], colour: str, width: float, *, dashed: bool = False) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dash}/>'
        )

    def dot(self, at: CanvasPoint, radius: float, colour: str) -> None:
        self._parts.append(f'<circle cx="{at.x:.1f}" cy="{at.y:.1f}" r="{radius:g}" fill="var(--{colour})"/>')

    def box(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        self._parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="var(--{colour})"/>'
        )

    def text(
        self, at: CanvasPoint, text: str, size: float, colour: str, anchor: Anchor = "start", *, strong: bool = False
    ) -> None:
        weight = ' font-weight="600"' if strong else ""
        self._parts.append(
            f'<text x="{at.x:.1f}" y="{at.y:.1f}" font-size="{size:g}" fill="var(--{colour})" '
            f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def element(self) -> str:
        return "".join([*self._parts, "</svg>"])
