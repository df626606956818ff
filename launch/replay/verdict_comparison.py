"""Compares the verdicts of replays with the recorded one.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.replay.scripted_policy import ObservationComparison
from protocol.evaluation import AttemptError, AttemptVerdict
from protocol.trajectory import TestResult


@dataclass(frozen=True, slots=True)
class ReplayAttempt:
    """One replay."""

    number: int
    verdict: AttemptVerdict | None
    failure: AttemptError | None
    observations: tuple[ObservationComparison, ...]
    """Observations that were recorded, and so can be compared."""
    seconds: float

    @property
    def different_observations(self) -> list[ObservationComparison]:
        return [each for each in self.observations if not each.same]


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """All replays of a trajectory, compared with the recording."""

    recorded_verdict: AttemptVerdict
    """The recorded verdict, its reward without the judge's part, as replays have no judge."""
    attempts: tuple[ReplayAttempt, ...]

    @property
    def agreeing_attempts(self) -> list[ReplayAttempt]:
        return [each for each in self.attempts if verdicts_agree(self.recorded_verdict, each.verdict)]

    @property
    def failed_attempts(self) -> list[ReplayAttempt]:
        """Replays without a verdict, because the infrastructure failed."""
        return [each for each in self.attempts if each.verdict is None]

    @property
    def all_agree(self) -> bool:
        return len(self.agreeing_attempts) == len(self.attempts)

    @property
    def flaky(self) -> bool:
        """Whether the replays differ from each other, which only chance or the machine can explain."""
        verdicts = [each.verdict for each in self.attempts if each.verdict is not None]
        return any(not verdicts_agree(verdicts[0], other) for other in verdicts[1:])

    @property
    def explanation(self) -> str:
        """One line that says where to look for the difference."""
        if self.all_agree:
            return "the verdict is the same"
        differing = [each for each in self.attempts if each.verdict is not None and each not in self.agreeing_attempts]
        if not differing:
            return "the infrastructure failed replays that have no verdict: replay once more"
        if any(not each.different_observations for each in differing):
            return "the agent observed the same but the verdict differs: look at the tests"
        turn = min(each.different_observations[0].turn for each in differing)
        return f"the observations differ from turn {turn} on: look there first, then at the tests"


def verdicts_agree(recorded: AttemptVerdict, replayed: AttemptVerdict | None) -> bool:
    """Return whether the same tests passed, as far as they are known, and the reward is the same."""
    if replayed is None or _ratio(recorded) != _ratio(replayed):
        return False
    same_tests = not recorded.tests or _passed(recorded.tests) == _passed(replayed.tests)
    return same_tests and math.isclose(recorded.reward, replayed.reward, rel_tol=1e-6, abs_tol=1e-6)


def describe_changed_tests(recorded: AttemptVerdict, replayed: AttemptVerdict) -> list[str]:
    """Return one line for each test with another result."""
    before, after = _passed(recorded.tests), _passed(replayed.tests)
    words = {True: "passed", False: "failed", None: "absent"}
    return [
        f"{name}: {words[before.get(name)]} recorded, {words[after.get(name)]} replayed"
        for name in dict.fromkeys((*before, *after))
        if before and before.get(name) != after.get(name)
    ]


def _ratio(verdict: AttemptVerdict) -> tuple[bool, float]:
    return verdict.passed, round(verdict.pass_ratio, 9)


def _passed(tests: Sequence[TestResult]) -> dict[str, bool]:
    return {test.name: test.passed for test in tests}
