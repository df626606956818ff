"""What replays of one trajectory say of its task and its tests.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.evaluate.attempts import Failure, Verdict
from launch.replay.script import Observation
from protocol.trajectory import TestResult


@dataclass(frozen=True, slots=True)
class Again:
    """One replay."""

    number: int
    verdict: Verdict | None
    failure: Failure | None
    observations: tuple[Observation, ...]
    """Those that can be compared: both then and now something was told."""
    seconds: float

    @property
    def different(self) -> list[Observation]:
        return [each for each in self.observations if not each.same]


@dataclass(frozen=True, slots=True)
class Judged:
    """All replays of a trajectory, held against what was recorded."""

    then: Verdict
    """Its reward without a judge's part, as no judge is asked again."""
    replays: tuple[Again, ...]

    @property
    def agreeing(self) -> list[Again]:
        return [each for each in self.replays if agrees(self.then, each.verdict)]

    @property
    def failed(self) -> list[Again]:
        """Of which infrastructure left no verdict."""
        return [each for each in self.replays if each.verdict is None]

    @property
    def same(self) -> bool:
        return len(self.agreeing) == len(self.replays)

    @property
    def flaky(self) -> bool:
        """Replays differ among themselves: nothing but chance, or the machine, can be why."""
        verdicts = [each.verdict for each in self.replays if each.verdict is not None]
        return any(not agrees(verdicts[0], other) for other in verdicts[1:])

    @property
    def meaning(self) -> str:
        """Where to look, in a line."""
        if self.same:
            return "the verdict is the same"
        told_apart = [each for each in self.replays if each.verdict is not None and each not in self.agreeing]
        if not told_apart:
            return "infrastructure failed what has no verdict: replay it once more"
        if any(not each.different for each in told_apart):
            return "the agent saw the same and the verdict is another: look at the tests"
        turn = min(each.different[0].turn for each in told_apart)
        return f"the agent saw something else from turn {turn} on: look there first, then at the tests"


def agrees(then: Verdict, now: Verdict | None) -> bool:
    """The same tests passed, as far as they are known, and the reward is the same."""
    if now is None or (then.passed, round(then.pass_ratio, 9)) != (now.passed, round(now.pass_ratio, 9)):
        return False
    known = not then.tests or _passed(then.tests) == _passed(now.tests)
    return known and math.isclose(then.reward, now.reward, rel_tol=1e-6, abs_tol=1e-6)


def changed_tests(then: Verdict, now: Verdict) -> list[str]:
    """One line for each test that says something else."""
    before, after = _passed(then.tests), _passed(now.tests)
    words = {True: "passed", False: "failed", None: "was not there"}
    return [
        f"{name} {words[before.get(name)]} then, and {words[after.get(name)]} now"
        for name in dict.fromkeys((*before, *after))
        if before and before.get(name) != after.get(name)
    ]


def _passed(tests: Sequence[TestResult]) -> dict[str, bool]:
    return {test.name: test.passed for test in tests}
