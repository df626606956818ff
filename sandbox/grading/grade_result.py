"""The result of grading one attempt."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import REWARD_TEST, GradedTest, weighted_score
from sandbox.grading.suspicions import Suspicion
from sandbox.tasks.task import GradingLevel


@dataclass(frozen=True, slots=True)
class GradeResult:
    """One result per test, and facts about the run."""

    tests: tuple[GradedTest, ...]
    reward: float | None
    """Value of the tests' own reward file, 0 … 1; None if they wrote none."""
    log: str
    """Head and tail of the tests' output, the links that were removed before, and the reason if the run is void."""
    level: GradingLevel
    """Grading level at which the tests ran. At ``sibling`` the agent's processes were alive."""
    isolation: Isolation
    timed_out: bool
    ms: float
    suspicions: tuple[Suspicion, ...] = ()
    """Commands of a full pass that a person should read."""

    @property
    def pass_ratio(self) -> float:
        """Passed tests ÷ all tests; 0 when there is no test."""
        return sum(test.passed for test in self.tests) / len(self.tests) if self.tests else 0.0

    @property
    def all_passed(self) -> bool:
        """True if there are tests and all of them passed."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def score(self) -> float:
        """Weight of the passed tests ÷ weight of all, 0 … 1; the reward itself if the tests wrote only that."""
        reward_only = [test.name for test in self.tests] == [REWARD_TEST]
        return self.reward if reward_only and self.reward is not None else weighted_score(self.tests)
