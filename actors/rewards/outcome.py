"""Reward from the hidden tests alone."""

from __future__ import annotations

from enum import StrEnum

from protocol.trajectory import Reward


class OutcomeReward(StrEnum):
    BINARY = "binary"
    """1 when every hidden test passed, else 0."""
    PASS_RATIO = "pass_ratio"  # noqa: S105  # no password
    """Passed tests ÷ expected tests."""

    def of(self, *, pass_ratio: float, all_passed: bool) -> Reward:
        passed = 1.0 if all_passed else 0.0
        total = passed if self is OutcomeReward.BINARY else pass_ratio
        return Reward(total, {"pass_ratio": pass_ratio, "all_passed": passed})
