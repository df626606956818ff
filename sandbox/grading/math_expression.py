r"""The program that compares two mathematical expressions in LaTeX, with math-verify.

It reads a JSON list ``[expected, given]`` a line and answers each with ``true`` or ``false``.  Each comparison runs in
a fork of its own with a limit of processor time and memory: sympy evaluates what it reads, so ``9^{9^{9}}`` has no
other end, and math-verify's own time limit is a signal, which only a main thread can take.  What reaches a limit, or
what math-verify cannot read, is not equal.  Its reader of LaTeX runs no Python; that of plain expressions, which does,
is not used.

math-verify reads the expressions and compares sets, intervals, equations, inequalities and matrices.  What it was found
to accept wrongly is decided here: it rounds numbers to six decimals, takes small differences for zero, lists for sets,
and the statement of a problem for its solution.
"""

# sympy and math-verify have no types
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import sys
from collections import Counter

from latex2sympy2_extended import NormalizationConfig
from latex2sympy2_extended.sets import FiniteSet as Listing
from math_verify import LatexExtractionConfig, parse, verify
from math_verify.grader import is_assignment_relation
from sympy import Basic, Equality, FiniteSet, Float, I, Interval, N, Rational, Tuple, Union, nan, oo, real_root, zoo
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, Or

CPU_S = 2
MEMORY_BYTES = 2 << 30
_DIGITS = 60
_RELATIVE = Rational(1, 10**40)
_LATEX = LatexExtractionConfig(
    boxed_match_priority=-1,
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none"
    ),
)
_WARM_UP = [
    (r"\frac{1}{2} < x < \sqrt{2}", r"(\frac{1}{2}, \sqrt{2})"),
    (r"\{1, -2\}", r"x = 1, x = -2"),
    (r"2\pi x^{2} + \sin y", r"\sin(y) + x \cdot 2 \pi x"),
]
"""Comparisons that fill the caches of the parser and of sympy, which every fork inherits."""


def expressions_equal(expected: str, given: str) -> bool:
    """Return whether both can be read and are equal, without any limit of time.  May raise any exception."""
    the, its = _read(expected), _read(given)
    if _is_number(the) and _is_number(its):
        return _numbers_equal(the, its)
    if not _counts_agree(the, its) or _states_the_problem(the, its):
        return False
    if (values := _values_in_order(the, its) or _values_in_order(its, the)) is not None:
        the, its = values
    if _are_ordered_and_not(the, its) or _are_ordered_and_not(its, the):
        return False
    if isinstance(the, Union) or isinstance(its, Union):
        the, its = _as_union(the), _as_union(its)
    if _is_chain(the) and _is_chain(its):
        return {part.canonical for part in the.args} == {part.canonical for part in its.args}
    return verify(the, its, numeric_precision=_DIGITS, allow_set_relation_comp=True, timeout_seconds=0)


def _read(latex: str) -> Basic:
    """Read an expression with its decimals as exact fractions and its letter i as the imaginary unit."""
    (expression,) = parse(
        f"$${latex}$$", [_LATEX], fallback_mode="no_fallback", extraction_mode="first_match", parsing_timeout=0
    )
    exact = {number: Rational(str(number)) for number in expression.atoms(Float)}
    imaginary = {letter: I for letter in expression.free_symbols if letter.name == "i"}
    return expression.xreplace(exact | imaginary)


def _is_number(expression: Basic) -> bool:
    return bool(getattr(expression, "is_number", False))


def _numbers_equal(one: Basic, other: Basic) -> bool:
    one, other = real_root(one.doit()), real_root(other.doit())
    if (one.is_Rational and other.is_Rational) or one in {oo, -oo}:
        return one == other
    if one.has(nan, zoo, oo) or other.has(nan, zoo, oo):
        return False
    return bool(abs(N(one - other, _DIGITS)) <= _RELATIVE * abs(N(one, _DIGITS)))


def _counts_agree(one: Basic, other: Basic) -> bool:
    """Return whether lists, or a list and a number, repeat the same as often: as sets, 1, 1, 2 and 1, 2 are equal."""
    if not all(isinstance(each, Listing) or _is_number(each) for each in (one, other)):
        return True
    its, the = (Counter(each._unsorted_args if isinstance(each, Listing) else (each,)) for each in (one, other))  # noqa: SLF001  its public members do not repeat
    return its == the or (its.total() == the.total() == len(its) == len(the))


def _states_the_problem(the: Basic, its: Basic) -> bool:
    """Return whether ``its`` is an equation or inequality that is yet to be solved, and ``the`` is not."""
    if _is_number(the):
        return bool(its.atoms(Relational)) and not is_assignment_relation(its)
    return _is_unsolved(its) and not _is_unsolved(the)


def _is_unsolved(expression: Basic) -> bool:
    """Return whether a relation of one letter, such as 2x = 10 or x^2 < 4, has neither it nor f(x) alone on a side."""
    return any(
        len(relation.free_symbols) == 1
        and not any(side.is_Symbol or isinstance(side, AppliedUndef) for side in relation.args)
        for relation in expression.atoms(Relational)
    )


def _are_ordered_and_not(one: Basic, other: Basic) -> bool:
    """Return whether they are like (1, 3) and {1, 3}, which math-verify takes for each other."""
    return isinstance(one, Interval | Tuple) and isinstance(other, FiniteSet)


def _values_in_order(ordered: Basic, assigned: Basic) -> tuple[Tuple, Tuple] | None:
    """Return the values of ``(1, 2)``, and those of ``x = 1, y = 2`` in the order of the names; None for others."""
    if not isinstance(assigned, FiniteSet) or not all(map(_is_assignment, assigned.args)):
        return None
    if isinstance(ordered, Interval) and ordered.left_open and ordered.right_open:
        ordered = Tuple(ordered.start, ordered.end)
    named = {each.lhs.name: each.rhs for each in assigned.args}
    if not isinstance(ordered, Tuple) or len(named) != len(assigned.args):
        return None
    return ordered, Tuple(*(named[name] for name in sorted(named)))


def _is_assignment(expression: Basic) -> bool:
    return isinstance(expression, Equality) and expression.lhs.is_Symbol and _is_number(expression.rhs)


def _as_union(expression: Basic) -> Basic:
    """Return the numbers for which one of a list of inequalities of one letter holds; others as they are."""
    relations = expression.args if isinstance(expression, FiniteSet) else ()
    if len(expression.free_symbols) == 1 and relations and all(map(_is_inequality, relations)):
        return Or(*relations).as_set()  # pyright: ignore[reportArgumentType]  they are relations
    return expression


def _is_inequality(expression: Basic) -> bool:
    return _is_chain(expression) or (isinstance(expression, Relational) and not isinstance(expression, Equality))


def _is_chain(expression: Basic) -> bool:
    """Return whether it is like 1 < x < 2, whose parts math-verify compares in the order of their writing."""
    return isinstance(expression, And) and all(isinstance(part, Relational) for part in expression.args)


def _compare_in_fork(expected: str, given: str) -> bool:
    child = os.fork()
    if not child:
        equal = False
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            equal = expressions_equal(expected, given)
        finally:  # sympy raises anything on what it cannot evaluate
            os._exit(not equal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def main() -> None:
    logging.disable(logging.CRITICAL)
    for expected, given in _WARM_UP:
        expressions_equal(expected, given)
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(_compare_in_fork(*json.loads(line)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
