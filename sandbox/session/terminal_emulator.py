"""Renders a program's output to a screen with pyte, at a bounded cost.

pyte processes any input at any cost: 64 KiB of combining marks on one letter, or of commands to invert the screen, take
it minutes. Here no byte costs more than a few rows or columns, and nothing grows from one drawing to the next. A screen
is plain characters; :meth:`TerminalEmulator.styled_row` adds colours for people.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyte
from pyte import modes
from pyte.screens import Char

MAX_CELL_CHARS = 5
"""Maximum characters of one cell: a character and its combining marks."""
MAX_SEQUENCE_CHARS = 8 << 10
"""Maximum characters of an unfinished escape sequence, which is then dropped."""
MAX_SAVED_CURSORS = 16
"""Maximum cursors that a program may save without restoring them."""
_BLANK = Char(" ")
_SEQUENCES = re.compile(r"(?=[\x1b\x9b\x9d])")
_UNKNOWN = (TypeError, ValueError, LookupError, UnboundLocalError, AssertionError)
"""Exceptions that pyte raises for an unknown sequence or parameter."""


@dataclass(frozen=True, slots=True)
class TerminalScreen:
    """The screen as a person would see it."""

    lines: tuple[str, ...]
    """Lines without trailing blanks."""
    cursor: tuple[int, int]
    """Row and column, from 0."""

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines).rstrip("\n")


class StyledText(NamedTuple):
    """A run of characters with the same style."""

    text: str
    color: str
    """``default``, one of eight names (``red``, ``brightred``), or six hexadecimal digits."""
    background: str
    bold: bool
    reverse: bool


class TerminalEmulator:
    """The screen of one terminal."""

    def __init__(self, rows: int, columns: int) -> None:
        self._cells = _Cells(columns, rows)
        self._parser = _Parser(self._cells)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._cells.lines, self._cells.columns

    def feed(self, text: str) -> None:
        """Draw text with its escape sequences."""
        for piece in _SEQUENCES.split(text):
            with contextlib.suppress(*_UNKNOWN):
                self._parser.feed(piece)

    def clear(self) -> None:
        """Clear the screen and drop an unfinished escape sequence."""
        self._cells.reset()
        self._parser = _Parser(self._cells)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size."""
        self._cells.resize(rows, columns)

    def screen(self) -> TerminalScreen:
        """Return the screen as it is now."""
        cells, columns = self._cells.buffer, range(self._cells.columns)
        lines = tuple("".join(cells[row][at].data for at in columns).rstrip() for row in range(self._cells.lines))
        return TerminalScreen(lines, (self._cells.cursor.y, self._cells.cursor.x))

    def styled_row(self, row: int) -> tuple[StyledText, ...]:
        """Return one row of the screen with its styles."""
        line = self._cells.buffer[row]
        cells = [line[at] for at in range(self._cells.columns)]
        return tuple(
            StyledText("".join(cell.data for cell in run), *look) for look, run in groupby(cells, key=_style_of)
        )


def _style_of(cell: Char) -> tuple[str, str, bool, bool]:
    return cell.fg, cell.bg, cell.bold, cell.reverse


class _Parser(pyte.Stream):
    """A pyte stream that receives pieces which begin where a sequence may begin."""

    def __init__(self, cells: _Cells) -> None:
        super().__init__(cells)
        self._under_way = 0

    def feed(self, data: str) -> None:
        super().feed(data)
        self._under_way = 0 if self._taking_plain_text else self._under_way + len(data)
        if self._under_way > MAX_SEQUENCE_CHARS:
            self._initialize_parser()


class _Cells(pyte.Screen):
    """pyte's screen without the operations that cost a whole screen for a few bytes."""

    @property
    def default_char(self) -> Char:
        return _BLANK

    def draw(self, data: str) -> None:
        if data.isascii():
            super().draw(data)
            return
        for char in data:
            if unicodedata.combining(char):
                self._mark(char)
            else:
                super().draw(char)

    def _mark(self, mark: str) -> None:
        """Put a combining mark on the character before the cursor."""
        line, at = self.buffer[self.cursor.y], self.cursor.x - 1
        if at >= 0:
            marked = unicodedata.normalize("NFC", line[at].data + mark)
            line[at] = line[at]._replace(data=marked[:MAX_CELL_CHARS])

    def erase_in_display(self, how: int = 0, *args: object, **kwargs: object) -> None:
        del args, kwargs
        everything = range(self.lines)
        rows = {0: range(self.cursor.y + 1, self.lines), 1: range(self.cursor.y), 2: everything, 3: everything}[how]
        for row in rows:
            self.buffer[row].clear()
        if how in (0, 1):
            self.erase_in_line(how)

    def insert_characters(self, count: int | None = None) -> None:
        self._shift(count or 1)

    def delete_characters(self, count: int | None = None) -> None:
        self._shift(-(count or 1))

    def _shift(self, by: int) -> None:
        """Move the cells from the cursor on; cells beyond the line are dropped."""
        line, at, end = self.buffer[self.cursor.y], self.cursor.x, self.columns
        cells = {x if x < at else x + by: cell for x, cell in line.items() if x < at or at <= x + by < end}
        line.clear()
        line.update(cells)

    def cursor_to_line(self, line: int | None = None) -> None:
        """Keep the cursor on the screen, which pyte does not do in origin mode without margins."""
        self.cursor_position(line, self.cursor.x + 1)

    def save_cursor(self) -> None:
        super().save_cursor()
        del self.savepoints[:-MAX_SAVED_CURSORS]

    def set_mode(self, *modes: int, **kwargs: bool) -> None:
        super().set_mode(*_supported_modes(modes, **kwargs), **kwargs)

    def reset_mode(self, *modes: int, **kwargs: bool) -> None:
        super().reset_mode(*_supported_modes(modes, **kwargs), **kwargs)

    def alignment_display(self) -> None:
        """Ignore the pattern for adjusting a monitor."""


def _supported_modes(chosen: tuple[int, ...], private: bool = False) -> list[int]:
    """Drop inverse video, which the characters do not show, and 132 columns, which this terminal does not have."""
    return [each for each in chosen if (each << 5 if private else each) not in (modes.DECSCNM, modes.DECCOLM)]
