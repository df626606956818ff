r"""Turns what people write for mathematics into the LaTeX that math-verify reads.  Pure.

Signs of Unicode, plain names of functions, mixed numbers, repeating decimals and commands that only set type.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_SIGNS = {
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{MULTIPLICATION SIGN}": r"\times ",
    "\N{DIVISION SIGN}": r"\div ",
    "\N{MIDDLE DOT}": r"\cdot ",
    "\N{SQUARE ROOT}": "sqrt",
    "\N{INFINITY}": r"\infty ",
    "\N{GREEK SMALL LETTER PI}": r"\pi ",
    "\N{LESS-THAN OR EQUAL TO}": r"\le ",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
    "\N{NOT EQUAL TO}": r"\ne ",
    "\N{UNION}": r"\cup ",
    "\N{ELEMENT OF}": r"\in ",
    "\N{EMPTY SET}": r"\emptyset ",
    "\N{PLUS-MINUS SIGN}": r"\pm ",
    "\N{DEGREE SIGN}": r"^\circ ",
    "\N{MATHEMATICAL LEFT ANGLE BRACKET}": r"\langle ",
    "\N{MATHEMATICAL RIGHT ANGLE BRACKET}": r"\rangle ",
}
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)?\s*(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z]))")
_TRIGONOMETRIC = re.compile(r"sin|cos|tan|cot|sec|csc")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:[, ]\d{3})+(?:\.\d+)?")
_WORD_COMMAND = r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|it)|mbox|operatorname)\s*"


def _repeating(found: re.Match[str]) -> str:
    whole, first, again = found[1] or "0", found[2], found[3]
    below = 10 ** len(first) * (10 ** len(again) - 1)
    return rf"\frac{{{int(whole + first + again) - int(whole + first)}}}{{{below}}}"


def _ordinal(found: re.Match[str]) -> str:
    """Return the number of ``7th``, and what is no ordinal, such as ``7st``, as it is."""
    number = int(found[1])
    suffix = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return found[1] if found[2] == suffix else found[0]


def _radians(degrees: re.Match[str]) -> str:
    return rf"(\frac{{{degrees[1] or 1}\pi}}{{180}})"


def _rules(*rules: tuple[str, str | Callable[[re.Match[str]], str]]) -> list[_Rule]:
    return [(re.compile(pattern), latex) for pattern, latex in rules]


_MARKUP = _rules(
    (r"(?<=\d)(?:\\[,! ]|\{,\})(?=\d{3})", ""),
    (r"\\(?:left|right|[bB]igg?[lr]?|limits|q?quad|displaystyle)(?![A-Za-z])", " "),
    (r"(?<!\\)\\[!,;: ()\[\]]|\\?[$€£¥]|~", " "),
    (r"^\s*\*\*(.*)\*\*\s*$", r"\1"),
    (r"(?<=[^.])\.\s*$", ""),
    (r"""^\s*(["'])(.*)\1\s*$""", r"\2"),
)
_LATEX = _rules(
    (rf"{_WORD_COMMAND}\{{([^{{}}]*)\}}", r"\1"),
    (r"(?i)^(?:no solutions?|(?:the )?empty set)$", r"\\emptyset "),
    (r"(?<![A-Za-z\\])infinity(?![A-Za-z])", r"\\infty "),
    (r"\\langle(?![A-Za-z])(.*)\\rangle(?![A-Za-z])", r"(\1)"),
    (r"^\(([A-Za-z])\)$", r"\1"),
    (r"^=\s*(?=\S)", ""),
    (r"^(\d+)\s*(?:\^\s*\{?\s*)?(st|nd|rd|th)\}?$", _ordinal),
    (r"\{([,:])\}", r"\1"),
    (r"(?:,\s*)?(?<=[\d\s)}])(?:or|and)(?=[\s\\(\d-])", ","),
    (r";", ","),
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset "),
    (r"\\(?:nice|[dtc])frac(?![A-Za-z])", r"\\frac"),
    (r"\\log_\{?e\}?(?![A-Za-z])", r"\\ln "),
    (r"\\?sqrt\s*(?:\(([^()]*)\)|(\d+|[A-Za-z])(?![A-Za-z(]))", r"\\sqrt{\1\2}"),
    (r"(?<![A-Za-z\\])(arc(?:sin|cos|tan)|sin|cos|tan|sec|csc|cot|exp|log|ln|pi)(?![A-Za-z])", r"\\\1 "),
    (r"\*\*", "^"),
    (r"\^\s*(-\s*(?:\d+|[A-Za-z]))", r"^{\1}"),
    (r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", r" \\times "),
    (r"(\d*)\.(\d*)\\(?:overline|dot)\s*\{(\d{1,9})\}(?!\d|\\dot)", _repeating),
    (r"(?<![\d.,/])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
    (r"^([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})$", r"\1 \\times 10^{\2}"),
)


def strip_markup(answer: str) -> str:
    """Remove dollars, spacing commands, quotes and a full stop, and write every sign in ASCII."""
    return _apply(_MARKUP, "".join(map(_ascii, answer.strip()))).strip()


def as_latex(text: str) -> str:
    degrees = _radians if _TRIGONOMETRIC.search(text) else r"\1"
    return _apply(_LATEX, _DEGREES.sub(degrees, text)).strip()


def is_degrees(text: str) -> bool:
    """Return whether a text without markup ends with the sign of degrees."""
    return any(found.end() == len(text) for found in _DEGREES.finditer(text))


def drop_thousands_separators(text: str) -> str:
    return re.sub("[, ]", "", text) if _GROUPED.fullmatch(text) else text


def _ascii(char: str) -> str:
    """Return the LaTeX or ASCII form of a sign: of ½ a fraction, of ² an exponent."""
    if char.isascii():
        return char
    form = _SIGNS.get(char) or unicodedata.normalize("NFKC", char)
    above, slash, below = form.partition("\N{FRACTION SLASH}")
    if slash:
        return rf"\frac{{{above}}}{{{below}}}"
    return f"^{form}" if unicodedata.decomposition(char).startswith("<super>") else form


def _apply(rules: list[_Rule], text: str) -> str:
    for pattern, latex in rules:
        text = pattern.sub(latex, text)
    return text
