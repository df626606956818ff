"""If these fail, a program can stop every sandbox of its process with a few bytes, or fill the memory with them."""

from __future__ import annotations

import sys
import unicodedata
from types import FrameType, TracebackType
from typing import Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.session.terminal_emulator import MAX_CELL_CHARS, MAX_SAVED_CURSORS, MAX_SEQUENCE_CHARS, TerminalEmulator

SIDE, TIMES = 200, 16
MOST_LINES = 20 * SIDE
"""Lines of Python for one sequence: a few for each row and column, far fewer than for each cell."""
ACUTE, UNFINISHED = "\u0301", "\x1b]0;"
marks = st.characters(categories=("Mn", "Mc", "Me"))


class LinesRun:
    """Counts the lines of Python that run inside the block."""

    def __enter__(self) -> Self:
        self.count, self._before = 0, sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: object) -> object:
        self.count += event == "line"
        return self._trace


def full() -> TerminalEmulator:
    drawing = TerminalEmulator(SIDE, SIDE)
    drawing.feed("x" * SIDE * SIDE + "\x1b[H")
    return drawing


def cells(drawing: TerminalEmulator) -> list[str]:
    """Return the screen's characters, each with its marks."""
    found: list[str] = []
    for char in "\n".join(drawing.screen().lines):
        if unicodedata.combining(char):
            found[-1] += char
        else:
            found.append(char)
    return found


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b#8", "\x1b[?5h\x1b[?5l", "\x1b[?3h\x1b[?3l", "\x1b[J", "\x1b[99;99H\x1b[1J", "\x1b[2J", "\x1b[2K",
        "\x1b[P", "\x1b[999999999P", "\x1b[@", "\x1b[999999999@", "\x1b[999999999X", "\x1b[4hx", "\x1b[L", "\x1b[M",
        "\x1b[999999999L", "\x1b[999999999B", "\x1b[999999999b", "\x1b[999999999S", "\x1bM", "\n", "\t", "\x1bc",
        "\x1b7", "\x1b8", "漢", ACUTE,
    ],
)  # fmt: skip
def test_no_escape_sequence_redraws_the_whole_screen(sequence: str):
    drawing = full()
    with LinesRun() as lines:
        drawing.feed(sequence * TIMES)
    assert lines.count < MOST_LINES * TIMES


@example([ACUTE * 10000], "\x1b[m")
@example(["\u0344"] * 20, "\x1b[D\x1b[C")
@given(
    st.lists(st.text(st.one_of(marks, st.just("b")), max_size=40), max_size=9), st.sampled_from(["", "\x1b[m", "\b"])
)
def test_the_number_of_combining_marks_per_character_is_limited(printed: list[str], between: str):
    drawing = TerminalEmulator(2, 20)
    for each in printed:
        drawing.feed("a" + between + each)
        drawing.feed(between)
        assert max(map(len, cells(drawing)), default=0) <= MAX_CELL_CHARS


def test_a_combining_mark_joins_the_previous_character_even_at_the_end_of_a_line():
    drawing = TerminalEmulator(2, 3)
    drawing.feed(f"cafe{ACUTE}")
    assert drawing.screen().lines == ("caf", "é")
    drawing.feed(f"\r\nxye{ACUTE}")
    assert drawing.screen().lines == ("é", "xyé")


def test_a_variation_selector_does_not_hide_the_text_after_it():
    drawing = TerminalEmulator(1, 20)
    drawing.feed("❤\ufe0f yes")
    assert drawing.screen().text == "❤ yes"


@pytest.mark.parametrize("begun", [UNFINISHED, "\x9d0;", "\x1b[1;"])
def test_an_unterminated_sequence_is_abandoned(begun: str):
    drawing = TerminalEmulator(2, 20)
    drawing.feed(begun)
    for _ in range(9):
        drawing.feed("1" * (MAX_SEQUENCE_CHARS // 8))
    drawing.feed("\r\nseen")
    assert drawing.screen().lines[1] == "seen"


def test_a_terminated_sequence_is_not_shown_however_it_is_split():
    drawing = TerminalEmulator(1, 20)
    for each in (UNFINISHED, *["t" * 99] * (MAX_SEQUENCE_CHARS // 100), "\x07seen"):
        drawing.feed(each)
    assert drawing.screen().text == "seen"


def test_clearing_the_screen_ends_an_unfinished_sequence():
    drawing = TerminalEmulator(1, 20)
    drawing.feed(UNFINISHED)
    drawing.clear()
    drawing.feed("seen")
    assert drawing.screen().text == "seen"


def test_saved_cursors_are_bounded():
    drawing = TerminalEmulator(2, 20)
    drawing.feed("\x1b[2;1H\x1b7" + "\x1b[2;9H\x1b7" * MAX_SAVED_CURSORS)
    drawing.feed("\x1b8" * MAX_SAVED_CURSORS)
    assert drawing.screen().cursor == (1, 8)
    drawing.feed("\x1b8")
    assert drawing.screen().cursor == (0, 0), "the first that was saved is forgotten, so it goes home"


@pytest.mark.parametrize("strange", ["\x1b[?6h\x1b[6n", "\x1b[9J", "\x1b[²B", f"\x1b[{'9' * 5000}B"])
def test_sequences_that_pyte_fails_on_are_skipped(strange: str):
    drawing = TerminalEmulator(2, 20)
    drawing.feed(f"{strange}\x1b[mseen")
    assert drawing.screen().text == "seen"


def test_origin_mode_cannot_move_the_cursor_off_the_screen():
    drawing = TerminalEmulator(2, 20)
    drawing.feed("\x1b[?6h\x1b[9999dseen")
    assert drawing.screen().lines == ("", "seen")
    assert drawing.screen().cursor == (1, 4)


def test_programs_edit_a_line_and_the_screen():
    drawing = TerminalEmulator(3, 10)
    drawing.feed("0123456789\r\x1b[2C\x1b[3P")
    assert drawing.screen().lines[0] == "0156789"
    drawing.feed("\x1b[2@ab\x1b[4hc\x1b[4l")
    assert drawing.screen().lines[0] == "01abc56789"
    drawing.feed("\x1b[999P\x1b[2;1Hsecond\r\nthird\x1b[2;4H\x1b[J")
    assert drawing.screen().lines == ("01abc", "sec", "")
    drawing.feed("\x1b[1J")
    assert drawing.screen().lines == ("", "", "")
