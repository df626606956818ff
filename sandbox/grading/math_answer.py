r"""Reads the ``\\boxed{…}`` answer at the end of a reply and compares it with the right one. Pure.

Two answers are the same when they are equal texts once typesetting is removed, or the same number, fraction or simple
expression (:mod:`sandbox.grading.math_expression`), or lists, pairs or intervals of such. An answer that contains more
than the question asks for is a different answer. Nothing in a reply is executed, and all work is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sandbox.grading.math_expression import (
    MOST_CHARS,
    Expression,
    UnreadableExpressionError,
    expressions_equal,
    parse_expression,
)

ANSWER_TEST = "answer"
"""Name of the only test of a task with a boxed answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_THOUGHT = "</think>"
_MOST_ITEMS = 50
_SET = "\N{LEFT WHITE CURLY BRACKET}", "\N{RIGHT WHITE CURLY BRACKET}"
"""Characters that stand for literal braces, which LaTeX distinguishes from grouping ones."""
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])|°")
_UNIT = re.compile(r"(?<=[\d}])\s*\\(?:text|textrm|mathrm|mbox)\s*\{[^{}\d]*\}\s*(?:\^\s*\{?\d\}?)?$")
_WORDED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it)|mbox|operatorname)\s*\{([^{}]*)\}")
_THIN = re.compile(r"(?<=\d)(?:\\[,! ]|\{,\})(?=\d{3})")
_GONE = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|limits|q?quad|displaystyle)(?![A-Za-z])|\\[!,;: ()\[\]]|\\?[$%]|~")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NAMED = re.compile(r"\s*([A-Za-z](?:_\{?\w+\}?)?(?:\([A-Za-z]\))?)\s*=([^=]*)")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s-]+[^\W\d_]+)*")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
"""White space, except between two numbers."""
_JOINED = re.compile(r"(?<=[\d\s)}])(?:or|and)(?=[\s\\(\d-])")


def extract_boxed(text: str) -> str | None:
    """Return the content of the reply's last box after its reasoning; None if there is none or it is not closed."""
    answer = text.rpartition(_THOUGHT)[2]
    boxes = list(_BOX.finditer(answer))
    if not boxes:
        return None
    begin, depth = boxes[-1].end(), 1
    for at in range(begin, len(answer)):
        if answer[at] in "{}" and answer[at - 1] != "\\":
            depth += 1 if answer[at] == "{" else -1
            if not depth:
                return answer[begin:at].strip()
    return None


def is_right_answer(reply: str, expected: str) -> bool:
    """Return whether ``reply`` gives ``expected``, which is an answer or a solution that boxes it."""
    given, boxed = extract_boxed(reply), extract_boxed(expected)
    return given is not None and same_answer(given, expected if boxed is None else boxed)


def same_answer(given: str, expected: str) -> bool:
    one, other = strip_typesetting(given[: 2 * MOST_CHARS]), strip_typesetting(expected[: 2 * MOST_CHARS])
    if not one or not other or max(len(given), len(expected)) > MOST_CHARS:
        return bool(expected.strip()) and given.strip() == expected.strip()
    if _WORDS.fullmatch(one) or _WORDS.fullmatch(other):
        return _tight(one).casefold() == _tight(other).casefold()
    (its_name, its), (the_name, the) = _split_name(one), _split_name(other)
    names = {name for name in (its_name, the_name) if name}
    return _tight(one) == _tight(other) or (len(names) < 2 and _same_lists(_listed(its), _listed(the)))


def strip_typesetting(answer: str) -> str:
    """Remove typesetting: dollars, spacing, units, quotes, a full stop, commands around words."""
    text = _DEGREES.sub("", answer.strip())
    text = _UNIT.sub("", text)
    text = _THIN.sub("", text.replace(r"\{", _SET[0]).replace(r"\}", _SET[1]))
    text = _JOINED.sub(",", _WORDED.sub(r"\1", _GONE.sub(" ", text)))
    text = text.strip().removesuffix(".").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


class _List(NamedTuple):
    brackets: str
    """Brackets around the list, such as ``(]`` of an interval; empty for a plain list and for a set."""
    items: tuple[str, ...]


def _tight(text: str) -> str:
    return _SPACE.sub("", text)


def _split_name(text: str) -> tuple[str, str]:
    """Split ``x = 5`` into ``x`` and ``5``."""
    found = _NAMED.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def _listed(text: str) -> _List:
    text = text.strip()
    ends = text[:1] + text[-1:]
    if _encloses(text):
        items = _items(text[1:-1])
        if ends == "".join(_SET):
            return _List("", items)
        if len(items) > 1 and ends != "{}":
            return _List(ends, items)
    return _List("", _items(text))


def _encloses(text: str) -> bool:
    """Return whether the first character is the bracket that the last one closes."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in f"([{{{_SET[0]}") - (char in f")]}}{_SET[1]}")
        if depth == 0:
            return at == len(text) - 1 > 0
    return False


def _items(text: str) -> tuple[str, ...]:
    """Split at commas outside all brackets and drop names: ``x = 1, x = 2`` lists 1 and 2."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in f"([{{{_SET[0]}") - (char in f")]}}{_SET[1]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(_split_name(part)[1].strip() for part in parts)


def _same_lists(one: _List, other: _List) -> bool:
    if one.brackets != other.brackets or not len(one.items) == len(other.items) <= _MOST_ITEMS:
        return False
    its, the = [_Item.parse(text) for text in one.items], [_Item.parse(text) for text in other.items]
    if one.brackets:
        return all(each.is_same(expected) for each, expected in zip(its, the, strict=True))
    return _same_sets(its, the)


def _same_sets(its: Sequence[_Item], the: Sequence[_Item]) -> bool:
    left = list(the)
    for each in its:
        found = next((expected for expected in left if each.is_same(expected)), None)
        if found is None:
            return False
        left.remove(found)
    return True


class _Item(NamedTuple):
    text: str
    value: Expression | None

    @classmethod
    def parse(cls, text: str) -> _Item:
        try:
            return cls(_tight(text), parse_expression(text))
        except UnreadableExpressionError:
            return cls(_tight(text), None)

    def is_same(self, other: _Item) -> bool:
        if self.text == other.text:
            return True
        return self.value is not None and other.value is not None and expressions_equal(self.value, other.value)
