"""If these fail, what a sandbox printed obeys itself in the terminal, the browser or the clipboard of who reads it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.monitor.run_state.sanitize import TerminalSanitizer, sanitize_json
from protocol.plain_text import sanitize_text

HOSTILE = st.lists(
    st.sampled_from([
        "a", "ö", "\n", "\t", "\r", "\x1b", "[", "]", "0;", "31", "m", "H", "J", "n", "c", "t", "?25h", "\x07", "\\",
        "52;c;aGk=", "8;;http://x", "P", "_", "^", "X", "\x9b", "\x9d", "\x00", "\x7f", "\u202e", "(B", "7", " ", "q",
        "\x1bPtmux;", "\x1b\x1b", "\x9c", "\x90",
    ]),
    max_size=30,
).map("".join)  # fmt: skip


@given(HOSTILE)
def test_sanitized_text_has_no_control_characters(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", sanitize_text(text))


@given(st.text(st.characters(categories=("L", "N", "P", "Zs"))))
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert sanitize_text(text) == text


def test_strings_deep_in_an_event_are_made_harmless() -> None:
    event = {"kind": "x", "why": ["a\x1b[2Jb", {"deep": "\x1b]0;title\x07c"}], "n": 1, "ok": None}
    assert sanitize_json(event) == {"kind": "x", "why": ["ab", {"deep": "c"}], "n": 1, "ok": None}


@given(HOSTILE)
def test_played_output_has_no_sequence_that_reaches_beyond_the_screen(text: str) -> None:
    played = TerminalSanitizer().sanitize(text + "\x07\x1b\\")  # whatever had begun has ended
    assert not re.search(r"\x1b[\]PX^_]|\x1b\[[0-9;:?]*[nctqxpyz]|\x07|[\x80-\x9f]", played)


@given(HOSTILE, st.lists(st.integers(0, 60), max_size=5))
def test_a_sequence_split_between_two_events_is_sanitized_like_a_whole_one(text: str, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    screen = TerminalSanitizer()
    pieces = [screen.sanitize(text[start:end]) for start, end in pairwise(bounds)]
    whole = TerminalSanitizer()
    assert "".join([*pieces, screen.sanitize("\x07\x1b\\")]) == whole.sanitize(text) + whole.sanitize("\x07\x1b\\")


@pytest.mark.parametrize(
    ("printed", "played"),
    [
        ("\x1b[1;32mok\x1b[0m\r\n", "\x1b[1;32mok\x1b[0m\r\n"),
        ("\x1b[2J\x1b[3;4Hx\x1b[K", "\x1b[2J\x1b[3;4Hx\x1b[K"),
        ("\x1b]52;c;aGk=\x07x", "x"),
        ("\x1b]8;;https://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b[6nx\x1b[c", "x"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("a\x1b", "a"),
        ("\x9b31mx\x9d0;title\x9cy", "xy"),
        ("\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\x", "x"),
        ("\x1b[?25l", "\x1b[?25l"),
    ],
)
def test_display_sequences_are_played_and_others_are_removed(printed: str, played: str) -> None:
    assert TerminalSanitizer().sanitize(printed) == played
