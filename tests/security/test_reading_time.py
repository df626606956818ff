"""Texts of agents, harnesses and authors are read in time that grows with their length.

If this fails, one such text holds an event loop for minutes: a regular expression lets no other thread run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.gateway.quotes import find_runs
from launch.monitor.run_state.sanitize import TerminalSanitizer
from protocol.plain_text import sanitize_text
from protocol.truncation import strip_escapes
from sandbox.tasks.container_files.named_images import find_named_images
from sandbox.tasks.task_containers import ImageBuild
from sandbox.validation.attacks.attack import TEST_NAME
from tests.support.growth import MOST_TIMES_THE_WORK, measure_growth

STARTS = ["\x9d", "\x90", "\x9b0", "\x1b]", "\x1bP\x1bx", "\x1bPtmux;", "\x1b\x1bPtmux;", "\x1b[0"]
"""Of sequences that have no end; a program in tmux may pass on others, with each ESC doubled."""


def play(text: str) -> str:
    return TerminalSanitizer().sanitize(text)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("read", [strip_escapes, sanitize_text, play])
def test_escape_sequences_without_an_end(read: Callable[[str], object], start: str) -> None:
    assert measure_growth(lambda size: read(start * size + "\x1bA"), 1_000) < MOST_TIMES_THE_WORK


@pytest.mark.parametrize("value", ["${$", "${", "$"])
def test_variables_of_a_dockerfile(value: str) -> None:
    def read(size: int) -> None:
        text = f"ARG A={value * size}}}\nFROM $A/b\n"
        find_named_images(ImageBuild({"Dockerfile": text.encode()}))

    assert measure_growth(read, 500) < MOST_TIMES_THE_WORK


def test_empty_lines_of_a_test_file() -> None:
    assert measure_growth(lambda size: TEST_NAME.findall(b"\n" * size), 2_000) < MOST_TIMES_THE_WORK


def test_backslashes_of_a_reply() -> None:
    assert measure_growth(lambda size: find_runs(["\\" * size]), 2_000) < MOST_TIMES_THE_WORK
