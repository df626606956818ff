"""What the driver knows of an optimizer step beside the learner's own metrics, and sums of such counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from learner.messages import TokenAccount

TokensByLength = Mapping[str, Mapping[str, int]]
"""Reason → bucket of length → tokens."""


def count_increase(before: TokensByLength, now: TokensByLength) -> dict[str, dict[str, int]]:
    """What was counted between two readings."""
    found: dict[str, dict[str, int]] = {}
    for reason, buckets in now.items():
        for bucket, tokens in buckets.items():
            if new := tokens - before.get(reason, {}).get(bucket, 0):
                found.setdefault(reason, {})[bucket] = new
    return found


def sum_counts(*counts: TokensByLength) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for each in counts:
        for reason, buckets in each.items():
            found.setdefault(reason, Counter()).update(buckets)
    return {reason: dict(buckets) for reason, buckets in found.items()}


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the driver knows of a step; the learner's own metrics come beside it."""

    step: int
    rewards: Sequence[float]
    """Of every trajectory whose group closed since the last step, trained or dropped: the policy's reward."""
    passed: int
    """Of these, those whose tests all passed."""
    zero_variance_groups: int
    groups: int
    trained: int
    """Trajectories of the batch that were trained."""
    dropped: Mapping[str, int]
    """Those that were not, by reason."""
    ages: Sequence[int]
    """Tokens with loss, by age in steps."""
    sampled_tokens: int
    """By all engines since the last step, for whatever they were."""
    wait_s: float
    """The learner stood idle for so long before this step."""
    step_s: float
    pause_ms: float
    """An engine's last pause."""
    token_account: TokenAccount = field(default_factory=TokenAccount)
    """Where the batch's tokens went."""
    dropped_tokens: TokensByLength = field(default_factory=dict[str, dict[str, int]])
    """Of trajectories that were dropped since the last step, by it or before it: by reason and bucket of length."""
    parity: LogprobParity | None = None
    """Of a probe that was made since the last step, by the weights that this one began with."""
    evaluated_step: int | None = None
    """Step whose weights were evaluated, where an online evaluation ended since the last step."""
    evaluation_pass_at_1: float = 0.0
    """pass@1 of that evaluation."""


class LogprobParity(NamedTuple):
    k3: float
    """Mean of r − 1 − log r, r = π ÷ μ: what the learner makes of a token over what the engine made of it."""
    tokens: int

    @property
    def rounded_k3(self) -> float | None:
        """``k3`` as it is written down; None where it is no number."""
        return float(f"{self.k3:.4g}") if np.isfinite(self.k3) else None


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """By training, over all attempts, with steps that were taken back and taken again."""

    tokens: int = 0
    """Sampled by the engines."""
    seconds: float = 0.0
