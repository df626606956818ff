"""Compares the verdicts of replays with the recorded one.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.evaluation.attempts import AttemptError, AttemptVerdict
from launch.replay.scripted_policy import ObservationComparison
from protocol.trajectory import TestResult


@dataclass(frozen=True, slots=True)
class ReplayAttempt:
    """One replay."""

    number: int
    verdict: AttemptVerdict | None
    failure: AttemptError | None
    observations: tuple[ObservationComparison, ...]
    """The observations that can be compared: recorded and replayed."""
    seconds: float

    @property
    def different_observations(self) -> list[ObservationComparison]:
        return [each for each in self.observations if not each.same]


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """All replays of a trajectory, compared with the recording."""

    recorded_verdict: AttemptVerdict
    """The recorded reward without the judge's part, as no judge is asked again."""
    attempts: tuple[ReplayAttempt, ...]

    @property
    def agreeing_attempts(self) -> list[ReplayAttempt]:
        return [each for each in self.attempts if verdicts_agree(self.recorded_verdict, each.verdict)]

    @property
    def failed_attempts(self) -> list[ReplayAttempt]:
        """Replays that the infrastructure failed."""
        return [each for each in self.attempts if each.verdict is None]

    @property
    def all_agree(self) -> bool:
        return len(self.agreeing_attempts) == len(self.attempts)

    @property
    def flaky(self) -> bool:
        """Whether the replays differ among themselves: nothing but chance, or the machine, can be why."""
        verdicts = [each.verdict for each in self.attempts if each.verdict is not None]
        return any(not verdicts_agree(verdicts[0], other) for other in verdicts[1:])

    @property
    def explanation(self) -> str:
        """One line that says where to look."""
        if self.all_agree:
            return "the verdict is the same"
        told_apart = [each for each in self.attempts if each.verdict is not None and each not in self.agreeing_attempts]
        if not told_apart:
            return "infrastructure failed what has no verdict: replay it once more"
        if any(not each.different_observations for each in told_apart):
            return "the agent saw the same and the verdict is another: look at the tests"
        turn = min(each.different_observations[0].turn for each in told_apart)
        return f"the agent saw something else from turn {turn} on: look there first, then at the tests"


def verdicts_agree(then: AttemptVerdict, now: AttemptVerdict | None) -> bool:
    """Return whether the same tests passed, as far as they are known, and the reward is the same."""
    if now is None or (then.passed, round(then.pass_ratio, 9)) != (now.passed, round(now.pass_ratio, 9)):
        return False
    known = not then.tests or _passed(then.tests) == _passed(now.tests)
    return known and math.isclose(then.reward, now.reward, rel_tol=1e-6, abs_tol=1e-6)


def describe_changed_tests(then: AttemptVerdict, now: AttemptVerdict) -> list[str]:
    """Return one line for each test with another result."""
    before, after = _passed(then.tests), _passed(now.tests)
    words = {True: "passed", False: "failed", None: "was not there"}
    return [
        f"{name} {words[before.get(name)]} then, and {words[after.get(name)]} now"
        for name in dict.fromkeys((*before, *after))
        if before and before.get(name) != after.get(name)
    ]


def _passed(tests: Sequence[TestResult]) -> dict[str, bool]:
    return {test.name: test.passed for test in tests}
