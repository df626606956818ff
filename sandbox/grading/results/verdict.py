"""Combines what tests reported into a verdict. Pure.

A program that runs beside a test can add to its reports but remove nothing. So the worst of several outcomes counts, a
test that no report names has failed, and a run whose exit contradicts its reports is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from protocol.trajectory import TestResult
from sandbox.grading.results.reported_names import ReportedNames, plain_name, short_name

REWARD_TEST = "reward"
"""Name of the test that represents a reward file."""
_SIGNALLED = 128
"""Smallest exit code of a shell that means that its command was killed by a signal."""


class GradingOutcome(StrEnum):
    """The outcome of one test, from best to worst. Only PASSED is a pass."""

    PASSED = "passed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    """It failed as its author expects: neither passed nor failed, and not part of a verdict."""
    MISSING = "missing"
    """It was expected but not reported."""
    FAILED = "failed"
    ERROR = "error"


_RANK = {outcome: rank for rank, outcome in enumerate(GradingOutcome)}
_FAILURES = frozenset({GradingOutcome.FAILED, GradingOutcome.ERROR})


def worst_outcome(outcomes: Iterable[GradingOutcome]) -> GradingOutcome:
    """Return the worst outcome; MISSING if there is none."""
    return max(outcomes, key=_RANK.__getitem__, default=GradingOutcome.MISSING)


class ReportedTest(NamedTuple):
    name: str
    """The name as reported: ``tests/test_a.py::test_x[1]``, ``test_x``, ``tests.test_a::test_x``."""
    outcome: GradingOutcome


@dataclass(frozen=True, slots=True)
class GradingReport:
    """The report of one source."""

    tests: tuple[ReportedTest, ...] = ()
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    """Finite numbers of a reward file by name; the only one of a file that names none is ``reward``."""
    spare_passes: tuple[ReportedTest, ...] = ()
    """Passes that count only for expected tests."""
    unexpected_failures: tuple[ReportedTest, ...] | None = None
    """Failures of unexpected tests that count; None for all."""
    fault: str = ""
    """Reason why the whole run is void: the source should hold a result, but none can be read from it."""

    @property
    def reward(self) -> float | None:
        """Value of a reward file, None for another source."""
        return total_reward(self.rewards)


@dataclass(frozen=True, slots=True)
class GradedTest:
    """One test's part of a grade."""

    name: str
    outcome: GradingOutcome
    weight: float = 1.0

    @property
    def passed(self) -> bool:
        return self.outcome is GradingOutcome.PASSED

    @property
    def result(self) -> TestResult:
        """Return the result as a trajectory records it."""
        return TestResult(self.name, self.passed, self.weight)


class GradingVerdict(NamedTuple):
    tests: tuple[GradedTest, ...]
    rewards: Mapping[str, float]
    """Rewards of the first reward file by name; empty if there was none."""


def total_reward(rewards: Mapping[str, float]) -> float | None:
    """Return the one of several rewards that counts: ``reward``, or else the mean of all; None if there is none."""
    if not rewards:
        return None
    return rewards["reward"] if "reward" in rewards else fmean(rewards.values())


def judge_reports(
    expected: Sequence[str], weights: Mapping[str, float], reports: Sequence[GradingReport], *, xfails: bool = True
) -> GradingVerdict:
    """Return one result for each expected test, or else for each test of the first report that names any; and one for
    each other test that failed.

    ``xfails``: the tests mark some as expected failures; otherwise only the agent can have marked them.  A reward file
    counts as a test of its own if no other report names a test, or if it is below 1 although every test passed.  A
    reward of 1 excuses no test that failed or that nobody reported: whoever silences pytest also gets that far.
    """
    rewards = next((report.rewards for report in reports if report.rewards), dict[str, float]())
    reward = total_reward(rewards)
    named = expected or next((_names(report) for report in reports if report.tests), ())
    weigh = _Weights(weights, named)
    tests = [
        GradedTest(name, outcome, weigh.weight_of(name))
        for name, outcome in _outcomes(named, reports).items()
        if outcome is not GradingOutcome.XFAILED or not xfails
    ]
    if reward is not None and all(test.passed for test in tests) and (reward < 1 or not tests):
        tests.append(GradedTest(REWARD_TEST, GradingOutcome.PASSED if reward >= 1 else GradingOutcome.FAILED))
    return GradingVerdict(tuple(tests), rewards)


def are_spotless(verdict: GradingVerdict, reports: Iterable[GradingReport]) -> bool:
    """Return whether reports name no failure, not even one that does not count, and there are tests that all passed."""
    outcomes = {test.outcome for report in reports for test in report.tests}
    return not outcomes & _FAILURES and bool(verdict.tests) and all(test.passed for test in verdict.tests)


def find_contradiction(exit_code: int, signalled: bool, verdict: GradingVerdict, *, fails_by_exit: bool = True) -> str:
    """Return why the exit of a test run makes its reports void; empty if it does not.

    A killed test process may have been silenced before it could name a failure, and one that exits with an error
    although all tests passed failed in a way that it did not report, unless it has written its own reward.
    ``fails_by_exit``: the script says by its exit too that tests have failed.
    """
    tests, rewards = verdict
    if signalled or exit_code >= _SIGNALLED:
        return "the tests were killed"
    if fails_by_exit and exit_code and not rewards and tests and all(test.passed for test in tests):
        return f"all tests passed, but then their script exited with {exit_code}"
    return ""


def weighted_score(tests: Sequence[GradedTest]) -> float:
    """Return the weight of the passed tests ÷ the weight of all; 0 when there is none."""
    total = sum(test.weight for test in tests)
    return sum(test.weight for test in tests if test.passed) / total if total > 0 else 0.0


def _names(report: GradingReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(short_name(test.name) for test in report.tests))


def _outcomes(named: Sequence[str], reports: Sequence[GradingReport]) -> dict[str, GradingOutcome]:
    """Return the outcome of each named test and of each other test that failed."""
    names = ReportedNames(named)
    reported: dict[str, list[GradingOutcome]] = {name: [] for name in named}
    others: dict[str, list[GradingOutcome]] = {}
    for report in reports:
        counting = frozenset(report.tests if report.unexpected_failures is None else report.unexpected_failures)
        for name, outcome in (*report.tests, *report.spare_passes):
            if meant := names.resolve(name):
                reported[meant].append(outcome)
            elif outcome in _FAILURES and (name, outcome) in counting:
                others.setdefault(short_name(name), []).append(outcome)
    outcomes = {name: worst_outcome(each) for name, each in reported.items()}
    bare = ReportedNames(others)
    for name in named:
        if (
            "[" in name and outcomes[name] is not GradingOutcome.PASSED
        ):  # a reporter that leaves out parameters means this test
            others.pop(bare.resolve(plain_name(name)) or "", None)
    return outcomes | {name: worst_outcome(each) for name, each in others.items()}


class _Weights:
    """Weights of tests, found by any form of their names."""

    def __init__(self, weights: Mapping[str, float], named: Sequence[str]) -> None:
        self._weights = weights
        self._others = ReportedNames([name for name in weights if name not in named])

    def weight_of(self, name: str) -> float:
        key = name if name in self._weights else self._others.resolve(name)
        return 1.0 if key is None else self._weights[key]
