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
    """Value of the tests' own reward file, any finite number; None if they wrote none."""
    log: str
    """Head and tail of the tests' output, the links that were removed before, and the reason if the run is void."""
    level: GradingLevel
    """Grading level at which the tests ran. At ``live`` and ``sibling`` the agent's processes were alive."""
    isolation: Isolation
    timed_out: bool
    ms: float
    suspicions: tuple[Suspicion, ...] = ()
    """Commands of a full pass that a person should read."""

    @property
    def pass_ratio(self) -> float:
        """Passed tests ÷ all tests, 0 … 1; 0 without a test. A reward that stands alone counts within these bounds."""
        if self.rewards_only:
            return min(max(self.reward or 0.0, 0.0), 1.0)
        return sum(test.passed for test in self.tests) / len(self.tests) if self.tests else 0.0

    @property
    def all_passed(self) -> bool:
        """True if there are tests and all of them passed."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def rewards_only(self) -> bool:
        """True if nothing but the reward file says how the tests ended."""
        return self.reward is not None and [test.name for test in self.tests] == [REWARD_TEST]

    @property
    def score(self) -> float:
        """The reward file's value if nothing else was reported, else the weight of the passed tests ÷ weight of all."""
        return self.reward if self.rewards_only and self.reward is not None else weighted_score(self.tests)
