"""The result of grading one attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.grading.canaries import CanaryVerdict
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import REWARD_TEST, GradedTest, total_reward, weighted_score
from sandbox.grading.suspicions import Suspicion
from sandbox.tasks.task_grading import GradingLevel

STEP_SEPARATOR = ": "
"""Stands between the name of a step and that of its test."""


@dataclass(frozen=True, slots=True)
class GradeResult:
    """One result per test, and facts about the run."""

    tests: tuple[GradedTest, ...]
    rewards: Mapping[str, float]
    """Finite numbers of the tests' own reward file by name; empty if they wrote none. Of several steps, those of all
    together (:mod:`sandbox.grading.steps`)."""
    log: str
    """Head and tail of the tests' output, the links that were removed before, the reason if the run is void, and the
    services that were stopped."""
    level: GradingLevel
    """Grading level at which the tests ran. At ``live`` and ``sibling`` the agent's processes were alive."""
    isolation: Isolation
    timed_out: bool
    ms: float
    suspicions: tuple[Suspicion, ...] = ()
    """Commands of a full pass that a person should read."""
    canaries: CanaryVerdict = CanaryVerdict.TRUE
    """What the canaries said: the run is void unless it is true."""

    @property
    def falsified(self) -> bool:
        """True if code of the agent falsified the outcomes of the tests, or the reports of them."""
        return self.canaries in {CanaryVerdict.LIED, CanaryVerdict.UNREPORTED}

    @property
    def reward(self) -> float | None:
        """The one of the rewards that counts; None if there is none."""
        return total_reward(self.rewards)

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
        """True if nothing but the reward file says how the tests ended; of several steps, but their reward files."""
        names = [test.name.rpartition(STEP_SEPARATOR)[2] for test in self.tests]
        return self.reward is not None and bool(names) and {*names} == {REWARD_TEST}

    @property
    def score(self) -> float:
        """The reward file's value if nothing else was reported, else the weight of the passed tests ÷ weight of all."""
        return self.reward if self.rewards_only and self.reward is not None else weighted_score(self.tests)
