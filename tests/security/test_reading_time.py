"""Texts of agents, harnesses and authors are read in time that grows with their length.

If this fails, one such text holds an event loop for minutes: a regular expression lets no other thread run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.gateway.quotes import find_runs
from launch.monitor.run_state.sanitize import TerminalSanitizer
from protocol.plain_text import sanitize_text
from protocol.truncation import strip_escapes
from tests.support.growth import MOST_TIMES_THE_WORK, measure_growth

STARTS = ["\x9d", "\x90", "\x9b0", "\x1b]", "\x1bP\x1bx", "\x1bPtmux;", "\x1b\x1bPtmux;", "\x1b[0"]
"""Of sequences that have no end; a program in tmux may pass on others, with each ESC doubled."""


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("read", [strip_escapes, sanitize_text, lambda text: TerminalSanitizer().sanitize(text)])
def test_escape_sequences_without_an_end(read: Callable[[str], object], start: str) -> None:
    assert measure_growth(lambda size: read(start * size + "\x1bA"), 1_000) < MOST_TIMES_THE_WORK


def test_backslashes_of_a_reply() -> None:
    assert measure_growth(lambda size: find_runs(["\\" * size]), 2_000) < MOST_TIMES_THE_WORK
