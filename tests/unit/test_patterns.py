"""If this fails, a text that an agent, a harness or a task's author chooses holds a process for minutes: a regular
expression takes time by the square of the text's length or more, and lets no other thread run."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support.growth import MOST_TIMES_THE_WORK, TIMES_LONGER, measure_growth
from tests.support.pattern_attacks import ROOMS, PatternAttack, UsedPattern, find_attacks, find_patterns

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SIZES = (16, 24, 32, 48, 96, 384, 1536, 6144)
FELT_S = 0.004
"""Processor time of a text that is looked at: linear work takes less for the longest of these sizes."""
BOUNDED = ("sandbox/grading/math_", "sandbox/tasks/formats/swe_bugs/count_tests.py")
"""Beginnings of the files whose texts, answers and lines, are not read beyond ``math_answer.MOST_CHARS`` and 4,096
characters."""
PUT_TOGETHER = 23
"""Patterns that are written only when they are used, of constants elsewhere or of names: they are not tried here."""
FOUND_BY_ATTACKS = {
    "strings of terminals": (r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)", 0),
    "unfinished strings": (r"(?:\x9b[0-?]*[ -/]*|\x9d[^\x07\x1b\x9c]*\x1b?)\Z", 0),
    "escapes of JSON": (r"\\+(?:[nrt]|u([0-9a-fA-F]{4}))", 0),
    "variables within variables": (r"""[\\`]|\$\{?\d|\$\{[^}]*(?:["']|\$.*["'])|[^\S \t]""", 0),
    "names of tests": (r"^\s*(?:async )?def (test_?\w+)", re.MULTILINE),
    "words of a shell": (r"\"(?:[^\"`\\$]|\$(?:[A-Za-z_]\w*|\d))*\"", 0),
}
"""Patterns that take time by the square of a text, its cube or, the last one, exponentially."""


def grows(used: UsedPattern, attack: PatternAttack) -> bool:
    """Return whether eight times as much text takes much more than eight times as long: far more, or twice in a row,
    as a bounded repetition takes more below its bound only."""
    for size in SIZES:
        text = attack.text(size)
        began = time.thread_time()
        used.read(text)
        if time.thread_time() - began > FELT_S:
            growth = measure_growth(lambda each: used.read(attack.text(each)), max(size // TIMES_LONGER, 3))
            if not MOST_TIMES_THE_WORK < growth < TIMES_LONGER**2 * 2:
                return growth > MOST_TIMES_THE_WORK
            return measure_growth(lambda each: used.read(attack.text(each)), size) > MOST_TIMES_THE_WORK
    return False


def find_growing(used: UsedPattern) -> PatternAttack | None:
    return next((each for each in find_attacks(used.pattern) if grows(used, each)), None)


@pytest.fixture(scope="module")
def patterns() -> tuple[list[UsedPattern], list[str]]:
    return find_patterns(ROOT)


@pytest.mark.parametrize("room", ROOMS)
def test_each_pattern_takes_time_that_grows_with_its_text(
    room: str, patterns: tuple[list[UsedPattern], list[str]]
) -> None:
    used = [each for each in patterns[0] if each.place.startswith(f"{room}/") and not each.place.startswith(BOUNDED)]
    assert {each.place: found for each in used if (found := find_growing(each))} == {}


def test_no_more_patterns_than_known_are_put_together_at_use(patterns: tuple[list[UsedPattern], list[str]]) -> None:
    assert len(patterns[1]) <= PUT_TOGETHER, "\n".join(patterns[1])


@pytest.mark.parametrize(("pattern", "flags"), FOUND_BY_ATTACKS.values(), ids=FOUND_BY_ATTACKS)
@pytest.mark.parametrize("method", ["search", "sub"])
def test_a_pattern_that_takes_longer_is_found(pattern: str, flags: int, method: str) -> None:
    assert find_growing(UsedPattern("a test", re.compile(pattern, flags), frozenset({method})))
