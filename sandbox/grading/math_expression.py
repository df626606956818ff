"""Compares numbers, fractions and simple expressions in LaTeX or plain text. Pure.

Only arithmetic is evaluated, and all of it is bounded: length, depth, exponents, factorials. Numbers are exact while
they are rational. Two expressions with letters are equal if they have the same value at some fixed, unusual points; so
sums and products in another order are equal, and so are different roots or functions that are equivalent.
"""

from __future__ import annotations

import cmath
import math
import operator
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

Number: TypeAlias = Fraction | complex
Value: TypeAlias = Callable[[Mapping[str, Number]], Number]
"""The value of an expression, given one for each of its letters.  Raises ArithmeticError or ValueError if it has none.
"""
_Step: TypeAlias = tuple[Callable[[Any, Any], Any], Value]
"""An operator and its right operand."""

MOST_CHARS = 1000
_MOST_DEPTH, _MOST_BITS, _MOST_COUNT = 100, 10_000, 500
_POINTS, _NEEDED = 6, 3
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<command>\\[A-Za-z]+)|"
    r"(?P<name>sqrt|arcsin|arccos|arctan|sin|cos|tan|exp|log|ln|pi)(?![a-z])|"
    r"(?P<letter>[A-Za-z](?:_(?:\{\w+\}|\w))?)|(?P<sign>\*\*|[-+*/^!(){}\[\]|]))"
)
_SIMPLE_FRACTION = re.compile(r"\\[dtc]?frac\{(\d+)\}\{(\d+)\}")
_CLOSED_BY = {"(": ")", "{": "}", "|": "|"}
_TIMES = {"*", "\\cdot", "\\times"}
_OVER = {"/", "\\div"}
_FRACTIONS = {"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"}
_FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\arcsin": cmath.asin,
    "\\arccos": cmath.acos,
    "\\arctan": cmath.atan,
    "\\exp": cmath.exp,
    "\\ln": cmath.log,
    "\\log": cmath.log,
}
_CONSTANTS: Mapping[str, complex] = {"\\pi": complex(math.pi), "e": complex(math.e)}
_LETTERS = frozenset(
    f"\\{name}"
    for name in (
        *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma", "tau", "phi"),
        *("varphi", "psi", "omega", "infty"),
    )
)


class UnreadableExpressionError(ValueError):
    """The text is not an expression, or too large to evaluate."""


@dataclass(slots=True)
class Expression:
    value: Value
    letters: frozenset[str]


@dataclass(slots=True)
class _Reader:
    """A recursive-descent parser; each method is one rule of the grammar."""

    tokens: list[str]
    at: int = 0
    depth: int = 0
    letters: set[str] = field(default_factory=set[str])

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        word = self.next
        if not word:
            raise UnreadableExpressionError("it ends too soon")
        self.at += 1
        return word

    def expect(self, word: str) -> None:
        if self.take() != word:
            raise UnreadableExpressionError(f"{word} is missing")

    @contextmanager
    def deeper(self) -> Generator[None]:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise UnreadableExpressionError("too deep")
        yield
        self.depth -= 1

    def sum(self) -> Value:
        value = self.product()
        terms: list[_Step] = []
        while self.next in {"+", "-"}:
            terms.append((operator.add if self.take() == "+" else operator.sub, self.product()))
        return _stepwise(value, terms)

    def product(self) -> Value:
        value = self.signed()
        factors: list[_Step] = []
        while True:
            if self.next in _TIMES | _OVER:
                factors.append((operator.mul if self.take() in _TIMES else _over, self.signed()))
            elif self.begins_factor():
                factors.append((operator.mul, self.power()))
            else:
                return _stepwise(value, factors)

    def begins_factor(self) -> bool:
        """Return whether a product continues without an operator; two adjacent numbers do not."""
        return self.next[:1].isalpha() or self.next[:1] in {"\\", "(", "{"}

    def signed(self) -> Value:
        negative = False
        while self.next in {"+", "-"}:
            negative ^= self.take() == "-"
        return _negative(self.power()) if negative else self.power()

    def power(self) -> Value:
        with self.deeper():
            value = self.atom()
            while self.next == "!":
                self.take()
                value = _factorial(value)
            if self.next in {"^", "**"}:
                self.take()
                return _power(value, self.exponent())
            return value

    def exponent(self) -> Value:
        if self.next != "-":
            return self.atom()
        self.take()
        return _negative(self.power())

    def atom(self) -> Value:
        with self.deeper():
            word = self.take()
            if word[0].isdigit():
                return self.mixed(Fraction(word)) if word.isdigit() else _constant(Fraction(f"{word}0"))
            if word[0] == ".":
                return _constant(Fraction(word))
            if word in _CLOSED_BY:
                value = self.sum()
                self.expect(_CLOSED_BY[word])
                return _applied(abs, value) if word == "|" else value
            return self.named(word)

    def named(self, word: str) -> Value:
        if word in _FRACTIONS:
            return _stepwise(self.digit(), [(_over, self.digit())])
        if word == "\\binom":
            return _binomial(self.atom(), self.atom())
        if word == "\\sqrt":
            return self.root()
        if word in _FUNCTIONS:
            return self.function(_FUNCTIONS[word])
        if word in _CONSTANTS:
            return _constant(_CONSTANTS[word])
        if word[0].isalpha() or word in _LETTERS:
            self.letters.add(word)
            return lambda letters: letters[word]
        raise UnreadableExpressionError(f"{word} is not supported here")

    def mixed(self, whole: Fraction) -> Value:
        r"""Read a mixed number: 2\\frac{1}{2} is 2.5."""
        behind = _SIMPLE_FRACTION.fullmatch("".join(self.tokens[self.at : self.at + 7]))
        if behind is None or self.next not in _FRACTIONS:
            return _constant(whole)
        self.at += 7
        below = int(behind[2])
        if not below:
            raise UnreadableExpressionError("a fraction over 0")
        return _constant(whole + Fraction(int(behind[1]), below))

    def digit(self) -> Value:
        r"""Read a group or one digit: \\frac12 is one half."""
        word = self.next
        if word.isdigit() and len(word) > 1:
            self.tokens[self.at : self.at + 1] = [word[0], word[1:]]
        return self.atom()

    def root(self) -> Value:
        degree = _constant(Fraction(2))
        if self.next == "[":
            self.take()
            degree = self.sum()
            self.expect("]")
        return _power(self.atom(), _stepwise(_constant(Fraction(1)), [(_over, degree)]))

    def function(self, function: Callable[[complex], complex]) -> Value:
        exponent = None
        if self.next == "^":
            self.take()
            exponent = self.exponent()
        bracketed = self.next in {"(", "{"}
        value = self.power()
        factors: list[_Step] = []
        while not bracketed and self.begins_factor() and self.next not in _FUNCTIONS:  # sin 2x
            factors.append((operator.mul, self.power()))
        applied = _applied(function, _stepwise(value, factors))
        return applied if exponent is None else _power(applied, exponent)


def parse_expression(text: str) -> Expression:
    """Parse an expression.  Raises UnreadableExpressionError."""
    if len(text) > MOST_CHARS:
        raise UnreadableExpressionError("too long")
    reader = _Reader(_tokens(text))
    value = reader.sum()
    if reader.next:
        raise UnreadableExpressionError(f"{reader.next} is left over")
    return Expression(value, frozenset(reader.letters))


def expressions_equal(left: Expression, right: Expression) -> bool:
    """Return whether both have the same value wherever they have one."""
    letters = sorted(left.letters | right.letters)
    if not letters:
        return _agree(left, right, {}) is True
    points = random.Random(20)
    agreements: list[bool] = []
    for _ in range(_POINTS):
        point = {name: complex(points.uniform(0.5, 2.0), points.uniform(0.1, 1.0)) for name in letters}
        agree = _agree(left, right, point)
        if agree is not None:
            agreements.append(agree)
    return len(agreements) >= _NEEDED and all(agreements)


def _agree(left: Expression, right: Expression, point: Mapping[str, Number]) -> bool | None:
    """Compare at one point; None if one of them has no value there."""
    try:
        one, other = left.value(point), right.value(point)
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return one == other
        one, other = complex(one), complex(other)
        if not (cmath.isfinite(one) and cmath.isfinite(other)):
            return None
        return abs(one - other) <= max(_RELATIVE * max(abs(one), abs(other)), _ABSOLUTE)
    except (ArithmeticError, ValueError):
        return None


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UnreadableExpressionError(f"{text[at : at + 10]!r} is not supported here")
        name = found["name"]
        tokens.append(f"\\{name}" if name else found[0].strip())
        at = found.end()
    return tokens


def _constant(number: Number) -> Value:
    return lambda _: number


def _over(above: Any, below: Any) -> Any:
    return above / below


def _negative(value: Value) -> Value:
    return lambda letters: -value(letters)


def _stepwise(first: Value, steps: Sequence[_Step]) -> Value:
    """Apply the operators from left to right, exactly while all operands are rational."""

    def value(letters: Mapping[str, Number]) -> Number:
        reached = first(letters)
        for sign, other in steps:
            one, two = reached, other(letters)
            exact = isinstance(one, Fraction) and isinstance(two, Fraction)
            reached = _bounded(sign(one, two)) if exact else sign(complex(one), complex(two))
        return reached

    return value


def _bounded(number: Fraction) -> Fraction:
    if number.numerator.bit_length() + number.denominator.bit_length() > 2 * _MOST_BITS:
        raise OverflowError("the number has too many digits")
    return number


def _power(base: Value, exponent: Value) -> Value:
    def value(letters: Mapping[str, Number]) -> Number:
        number, by = base(letters), exponent(letters)
        if isinstance(number, Fraction) and isinstance(by, Fraction):
            if by.denominator == 1:
                return _whole_power(number, int(by))
            if by == Fraction(1, 2) and number >= 0 and (root := _exact_root(number)) is not None:
                return root
            return _root(number, by)
        return complex(number) ** complex(by)

    return value


def _root(number: Fraction, by: Fraction) -> complex:
    """Return the real odd root of a negative number, else the principal root."""
    if number < 0 and by.denominator % 2:
        return complex((-1) ** (by.numerator % 2) * float(-number) ** float(by))
    return complex(number) ** complex(by)


def _whole_power(number: Fraction, by: int) -> Fraction:
    bits = max(number.numerator.bit_length(), number.denominator.bit_length())
    if abs(by) * bits > _MOST_BITS:
        raise OverflowError("the number has too many digits")
    return number**by


def _exact_root(number: Fraction) -> Fraction | None:
    above, below = math.isqrt(number.numerator), math.isqrt(number.denominator)
    return Fraction(above, below) if Fraction(above * above, below * below) == number else None


def _applied(function: Callable[[complex], complex | float], argument: Value) -> Value:
    return lambda letters: complex(function(complex(argument(letters))))


def _count(number: Number) -> int:
    if isinstance(number, Fraction) and number.denominator == 1 and 0 <= number <= _MOST_COUNT:
        return int(number)
    raise ValueError("no count")


def _factorial(argument: Value) -> Value:
    return lambda letters: Fraction(math.factorial(_count(argument(letters))))


def _binomial(of: Value, take: Value) -> Value:
    return lambda letters: Fraction(math.comb(_count(of(letters)), _count(take(letters))))
