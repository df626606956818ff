r"""Reads the ``\\boxed{…}`` answer at the end of a reply and compares it with the right one.

Two answers are the same when they are equal texts once typesetting is removed, the same number, or the same expression,
list, interval, equation or matrix as :mod:`sandbox.grading.math_expression` reads them in a process of its own.  An
answer that contains more than the question asks for is a different answer.  A unit counts where both answers have one.
Nothing in a reply is executed, and all work is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from sandbox.grading.math_process import EXPRESSIONS
from sandbox.grading.math_typesetting import as_latex, drop_thousands_separators, is_degrees, strip_markup
from sandbox.grading.math_units import split_unit

ANSWER_TEST = "answer"
"""Name of the only test of a task with a boxed answer."""

MOST_CHARS = 1000

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_THOUGHT = "</think>"
_AND = r"(?:,|and|or|\\text\s*\{\s*(?:and|or)\s*\})"
_MARKUP = r"(?:\\[()\[\]]|\\q?quad|\\[,; ]|[$\s])*"
_BETWEEN_BOXES = re.compile(f"{_MARKUP}(?:,{_MARKUP})?{_AND}{_MARKUP}")
_PERCENT = {"%", "percent", "percentage", "pct"}
_DEGREE = "degree"
_SET_BUILDER = re.compile(r"\\\{(?:(?!\\\{)[^}])*?(?::|\\mid|\||\\vert)")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s-]+[^\W\d_]+)*")
_LETTERS = re.compile("[xyz]+")
"""A product of unknowns, and no word."""
_PRODUCT = re.compile(r"\\(?:cdot|times)(?![A-Za-z])|\*")
"""Shows that letters are factors, and no word."""
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)")
_NUMERAL = re.compile(r"(\d[\dA-Fa-f]*)_\{?(\w+)\}?")
"""A number with its base."""
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
"""White space, except between two numbers."""


def extract_boxed(text: str) -> str | None:
    r"""Return the content of the reply's last box after its reasoning; None if there is none or it is not closed.

    Boxes that only a comma, "and" or "or" separates are one list: ``\boxed{1} and \boxed{2}`` is ``1, 2``."""
    answer = text.rpartition(_THOUGHT)[2]
    contents: list[str] = []
    begun = len(answer)
    for box in reversed(list(_BOX.finditer(answer))):
        end = _find_closing_brace(answer, box.end())
        if end is None or (contents and not _BETWEEN_BOXES.fullmatch(answer, end + 1, begun)):
            break
        contents.append(answer[box.end() : end].strip())
        begun = box.start()
    return ", ".join(reversed(contents)) if contents else None


def is_right_answer(reply: str, expected: str) -> bool:
    """Return whether ``reply`` gives ``expected``, which is an answer or a solution that boxes it.

    Blocks for up to a few seconds; may be called in any thread.  Raises InfraError."""
    given, boxed = extract_boxed(reply), extract_boxed(expected)
    return given is not None and same_answer(given, expected if boxed is None else boxed)


def same_answer(given: str, expected: str) -> bool:
    if not expected.strip() or given.strip() == expected.strip():
        return bool(expected.strip())
    if max(len(given), len(expected)) > MOST_CHARS:
        return False
    its, the = _Answer.read(given), _Answer.read(expected)
    if its.unit and the.unit and its.unit != the.unit:
        return False
    if _same_texts(its.text, the.text):
        return True
    return its.measure != the.measure and _same_texts(its.plain_number, the.plain_number)


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    unit: str
    measure: tuple[str, str] = ("", "")
    """LaTeX that is put before and behind the text to write percent or degrees as a number; empty for other answers."""

    @classmethod
    def read(cls, answer: str) -> _Answer:
        text, unit = split_unit(strip_markup(answer))
        number = drop_thousands_separators(as_latex(text))
        if unit in _PERCENT:
            return cls(number, "", (r"\frac{", "}{100}"))
        if unit == _DEGREE or is_degrees(text):
            return cls(number, unit, (r"\frac{(", r") \cdot \pi}{180}"))
        return cls(number, unit)

    @property
    def plain_number(self) -> str:
        """The answer with 50 percent as 50/100, and degrees as radians."""
        before, behind = self.measure
        return before + self.text + behind


def _find_closing_brace(text: str, begin: int) -> int | None:
    depth = 1
    for at in range(begin, len(text)):
        if text[at] in "{}" and text[at - 1] != "\\":
            depth += 1 if text[at] == "{" else -1
            if not depth:
                return at
    return None


def _same_texts(one: str, other: str) -> bool:
    if not one or not other:
        return False
    if _SPACE.sub("", one) == _SPACE.sub("", other):
        return True
    if _LETTERS.fullmatch(one) and _LETTERS.fullmatch(other):
        return sorted(one) == sorted(other)
    if (_WORDS.fullmatch(one) or _WORDS.fullmatch(other)) and not _PRODUCT.search(one + other):
        return _SPACE.sub("", one).casefold() == _SPACE.sub("", other).casefold()
    if _NUMERAL.fullmatch(one) or _NUMERAL.fullmatch(other):
        return _NUMERAL.sub(r"\1_\2", one) == _NUMERAL.sub(r"\1_\2", other)
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return Fraction(one) == Fraction(other)
    if _SET_BUILDER.search(one + other):  # math-verify reads x: x > 1 as a quotient
        return False
    return EXPRESSIONS.expressions_equal(other, one)
