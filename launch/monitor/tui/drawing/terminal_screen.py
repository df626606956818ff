"""Draws the screen of a recorded terminal.  Pure."""

from __future__ import annotations

import re

from rich.text import Text

from launch.monitor.tui.drawing.playback import ScreenImage
from sandbox.session.terminal_emulator import StyledText

_HEX = re.compile(r"[0-9a-f]{6}")
_NAMES = frozenset({"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"})
_PYTES = {"brown": "yellow", "brightbrown": "bright_yellow", "bfightmagenta": "bright_magenta"}
"""Colour names of pyte → those of rich."""


def render_screen(shown: ScreenImage, width: int, height: int) -> Text:
    """Return the screen, cut on the right, and to the lines around the cursor if it is too high."""
    row, column = shown.cursor
    used = max([row, *(index for index, line in enumerate(shown.lines) if any(run.text.strip() for run in line))])
    first = 0 if used < height else max(0, min(row - height + 1, len(shown.lines) - height))
    lines: list[Text] = []
    for index, line in enumerate(shown.lines[first : first + height], first):
        painted = Text.assemble(*((run.text, run_style(run)) for run in line))
        if index == row:
            painted.stylize("reverse", column, column + 1)
        painted.truncate(width)
        lines.append(painted)
    return Text("\n", no_wrap=True).join(lines)


def run_style(run: StyledText) -> str:
    words = ["bold"] if run.bold else []
    words += ["reverse"] if run.reverse else []
    if color := _color(run.color):
        words.append(color)
    if background := _color(run.background):
        words.append(f"on {background}")
    return " ".join(words)


def _color(name: str) -> str:
    if _HEX.fullmatch(name):
        return f"#{name}"
    known = _PYTES.get(name) or (f"bright_{name[6:]}" if name.startswith("bright") else name)
    return known if known.removeprefix("bright_") in _NAMES else ""
