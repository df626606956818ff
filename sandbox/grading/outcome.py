"""What tests reported, and the verdict that follows from it.  Pure.

Whoever runs beside a test can add to what it says and cannot take it back.  So of several words on one test the worst
counts, a test that nobody named has not run and has failed, and a run whose end contradicts its words proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from protocol.trajectory import TestResult

REWARD = "reward"
"""Name of the test that stands for a reward file."""
_SIGNALLED = 128
"""A shell's exit codes from here on say that what it ran was killed."""


class Outcome(StrEnum):
    """How one test ended, from best to worst.  Only PASSED is passed."""

    PASSED = "passed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    MISSING = "missing"
    """Expected, and not reported."""
    FAILED = "failed"
    ERROR = "error"


_RANK = {outcome: rank for rank, outcome in enumerate(Outcome)}
_FAILURES = frozenset({Outcome.FAILED, Outcome.ERROR})


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The one that counts; MISSING for none."""
    return max(outcomes, key=_RANK.__getitem__, default=Outcome.MISSING)


class Reported(NamedTuple):
    name: str
    """As the report wrote it: ``tests/test_a.py::test_x[1]``, ``test_x``, ``tests.test_a::test_x``."""
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What one source said."""

    tests: tuple[Reported, ...] = ()
    reward: float | None = None
    """From a reward file, between 0 and 1."""


@dataclass(frozen=True, slots=True)
class GradedTest:
    """One test's part of a grade."""

    name: str
    outcome: Outcome
    weight: float = 1.0

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def result(self) -> TestResult:
        """As a trajectory records it."""
        return TestResult(self.name, self.passed, self.weight)


class Verdict(NamedTuple):
    tests: tuple[GradedTest, ...]
    reward: float | None
    """What the reward files said, 0 … 1; None when there was none."""


def judge(expected: Sequence[str], weights: Mapping[str, float], reports: Sequence[Report]) -> Verdict:
    """One result for each expected test, or for each test of the first report that names any when none is expected.

    A reward file counts as a test of its own where nothing else names a test, or where it says less than 1 although
    every test passed.
    """
    rewards = [report.reward for report in reports if report.reward is not None]
    reward = min(rewards) if rewards else None
    index = _Index(each for report in reports for each in report.tests)
    named = expected or next((_names(report) for report in reports if report.tests), ())
    weigh = _Weights(weights)
    tests = [GradedTest(name, index.worst(name), weigh.of(name)) for name in named]
    if reward is not None and all(test.passed for test in tests) and (reward < 1 or not tests):
        tests.append(GradedTest(REWARD, Outcome.PASSED if reward >= 1 else Outcome.FAILED))
    return Verdict(tuple(tests), reward)


def contradiction(exit_code: int, signalled: bool, tests: Sequence[GradedTest], reports: Sequence[Report]) -> str:
    """Why a test run's end takes its words back; empty when it does not.

    A grader that was killed may have been silenced before it could name a failure, and one that ends badly although all
    passed has something to say that it did not say.
    """
    if signalled or exit_code >= _SIGNALLED:
        return "the tests were killed"
    failed = any(test.outcome in _FAILURES for report in reports for test in report.tests)
    if exit_code and not failed and tests and all(test.passed for test in tests):
        return f"all tests passed, and then their script exited {exit_code}"
    return ""


def weighted(tests: Sequence[GradedTest]) -> float:
    """Weight of what passed ÷ weight of all, 0 when there is none."""
    total = sum(test.weight for test in tests)
    return sum(test.weight for test in tests if test.passed) / total if total > 0 else 0.0


def short_name(name: str) -> str:
    """``tests/test_a.py::test_x[1]`` → ``test_x[1]``."""
    return name.split("::", 1)[-1]


def _names(report: Report) -> tuple[str, ...]:
    return tuple(dict.fromkeys(short_name(test.name) for test in report.tests))


class _Path(NamedTuple):
    """A test's name in one form, however its reporter divides it: ``a/b.py::C::t[x/y]`` is ``a.b.C.t[x/y]``."""

    dotted: str
    last: str

    @classmethod
    def of(cls, name: str) -> _Path:
        head, bracket, parameters = name.partition("[")
        dotted = head.replace(".py::", ".").replace("::", ".").replace("/", ".").strip(". ")
        end = bracket + parameters
        return cls(dotted + end, dotted.rpartition(".")[2] + end)

    def same(self, other: _Path) -> bool:
        """Equal, or one says only the end of the other."""
        a, b = self.dotted, other.dotted
        return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


class _Index:
    """Outcomes by the last part of their test's name."""

    def __init__(self, tests: Iterable[Reported]) -> None:
        self._by_last: dict[str, dict[_Path, Outcome]] = defaultdict(dict)
        for name, outcome in tests:
            path = _Path.of(name)
            at = self._by_last[path.last]
            at[path] = worst((at.get(path, outcome), outcome))

    def worst(self, name: str) -> Outcome:
        path = _Path.of(name)
        return worst(outcome for other, outcome in self._by_last.get(path.last, {}).items() if path.same(other))


class _Weights:
    """Weights by test, whichever form either name has."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._by_last: dict[str, list[tuple[_Path, float]]] = defaultdict(list)
        for name, weight in weights.items():
            path = _Path.of(name)
            self._by_last[path.last].append((path, weight))

    def of(self, name: str) -> float:
        path = _Path.of(name)
        return next((weight for other, weight in self._by_last.get(path.last, ()) if path.same(other)), 1.0)
