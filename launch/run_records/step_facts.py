"""Facts about an optimizer step that the learner's metrics lack, and sums of counts."""

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
    """Return the counts that were added between two readings."""
    increase: dict[str, dict[str, int]] = {}
    for reason, buckets in now.items():
        for bucket, tokens in buckets.items():
            if new := tokens - before.get(reason, {}).get(bucket, 0):
                increase.setdefault(reason, {})[bucket] = new
    return increase


def sum_counts(*counts: TokensByLength) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for each in counts:
        for reason, buckets in each.items():
            found.setdefault(reason, Counter()).update(buckets)
    return {reason: dict(buckets) for reason, buckets in found.items()}


@dataclass(frozen=True, slots=True)
class StepFacts:
    """Facts about a step that the driver knows."""

    step: int
    rewards: Sequence[float]
    """Reward of every trajectory whose group closed since the last step, trained or dropped."""
    passed: int
    """Number of these trajectories whose tests all passed."""
    zero_variance_groups: int
    groups: int
    trained: int
    """Number of trajectories of the batch that were trained."""
    dropped: Mapping[str, int]
    """Number of trajectories of the batch that were not, by reason."""
    staleness_histogram: Sequence[int]
    """Number of tokens with loss by staleness in steps."""
    sampled_tokens: int
    """Tokens that all engines sampled since the last step, for any purpose."""
    wait_s: float
    """Seconds that the learner was idle before this step."""
    step_s: float
    pause_ms: float
    """Milliseconds of the last pause of an engine for new weights."""
    token_account: TokenAccount = field(default_factory=TokenAccount)
    """Account of the batch's tokens: trained, masked or dropped."""
    dropped_tokens: TokensByLength = field(default_factory=dict[str, dict[str, int]])
    """Tokens of trajectories that were dropped since the last step, by reason and length."""
    judge_tokens: int | None = None
    """Tokens that the engines of the run's own judge sampled since the last step; None without one."""
    parity: LogprobParity | None = None
    """Result of a parity check since the last step, of the weights that this step started from."""
    evaluated_step: int | None = None
    """Step whose weights were evaluated, if an online evaluation ended since the last step."""
    evaluation_pass_at_1: float = 0.0
    """pass@1 of that evaluation."""


class LogprobParity(NamedTuple):
    k3: float
    """Mean of r − 1 − log r, where r = π ÷ μ is the learner's probability of a token over the engine's."""
    tokens: int

    @property
    def rounded_k3(self) -> float | None:
        """``k3`` as it is written to files; None if it is not finite."""
        return float(f"{self.k3:.4g}") if np.isfinite(self.k3) else None


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """Usage of training over all starts, including discarded steps."""

    tokens: int = 0
    """Tokens that the engines sampled."""
    seconds: float = 0.0
