"""What a chart is drawn on.  Colours are names of the page's palette; text is anchored at its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Anchor = Literal["start", "middle", "end"]

LIGHT = {
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
}
"""As in the monitor's style sheet, where they are variables."""


class CanvasPoint(NamedTuple):
    x: float
    y: float


class Canvas(Protocol):
    def line(self, points: Sequence[CanvasPoint], colour: str, width: float, *, dashed: bool = False) -> None: ...
    def dot(self, at: CanvasPoint, radius: float, colour: str) -> None: ...
    def box(self, left: float, top: float, width: float, height: float, colour: str) -> None: ...
    def text(
        self, at: CanvasPoint, text: str, size: float, colour: str, anchor: Anchor = "start", *, strong: bool = False
    ) -> None: ...
