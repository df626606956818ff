"""What is maximised, beside the loss itself: the reward's shape, corrections, a penalty for leaving the reference."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from launch.config.policy import LearnerSection
from learner.losses.objective import (
    KlEstimator,
    KlPenalty,
    Objective,
    OffPolicyCorrections,
    ProximalPolicy,
    RewardShaping,
)
from protocol.settings import ConfigSection, CountInt


class ShapingSection(ConfigSection):
    """From an episode's reward (with ``learner.advantage = "step"``, and a turn's own) to the one that advantages are
    taken of.  Groups without variance are dropped by the episodes' own rewards, before this."""

    bias: float = 0.0
    """Added to the reward."""
    scale: float = 1.0
    """The sum is multiplied by it."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """Largest value, up or down, after that; without it there is no bound."""
    overlong_tokens: CountInt = 0
    """Sampled tokens of a trajectory at which ``overlong_factor`` is taken off the reward; 0 for no such penalty."""
    overlong_buffer: CountInt = 0
    """The penalty grows from 0 over so many tokens before ``overlong_tokens``."""
    overlong_factor: Annotated[float, Field(ge=0)] = 1.0
    """Penalty at ``overlong_tokens``, in units of reward before bias and scale."""


class CorrectionSection(ConfigSection):
    """For the gap between the weights that sampled and those that train."""

    proximal: ProximalPolicy = ProximalPolicy.NONE
    """Policy around which the ratio is bounded: ``none``, the one that sampled; ``recomputed``, the weights before the
    batch's first update (one more forward pass, and learner.minibatches = 2 or more); ``log_linear``, in between by the
    token's age."""
    cap: Annotated[float, Field(gt=0)] = 5.0
    """Bound of the weight π_prox ÷ μ that comes with a proximal policy."""
    band: tuple[float, float] | None = None
    """IcePop: tokens whose π ÷ μ is outside of it get no loss; [0.5, 2.0], say."""
    opsm: Annotated[float, Field(ge=0)] | None = None
    """Sequences with negative advantages whose mean of log μ − log π is above it get no loss."""
    m2po: Annotated[float, Field(gt=0)] | None = None
    """Tokens lose their loss, those with the largest (log π − log μ)² first, until its mean over the batch is at most
    this (one more forward pass); 0.04, say."""


class KlSection(ConfigSection):
    """A penalty for leaving the weights with which reinforcement learning began."""

    coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Its weight in the loss; 0 keeps no reference.  Otherwise each step takes one more forward pass, and each rank's
    host memory holds a second model, unless adapters are trained (``lora.rank``): it is the base then."""
    estimator: KlEstimator = KlEstimator.K3
    """``k1``, ``k2`` or ``k3``, all without a negative expectation; k3 has the least variance."""


def make_objective(
    learner: LearnerSection, shaping: ShapingSection, correction: CorrectionSection, kl: KlSection
) -> Objective:
    """What the learner maximises.  Raises UserError where keys contradict each other."""
    return Objective(
        loss=learner.loss,
        eps_low=learner.eps_low,
        eps_high=learner.eps_high,
        dual_clip=learner.dual_clip,
        tis_cap=learner.tis_cap,
        tv_bound=learner.tv_bound,
        aggregation=learner.aggregation,
        aggregation_tokens=learner.aggregation_tokens,
        minibatches=learner.minibatches,
        advantage=learner.advantage,
        shaping=RewardShaping(**shaping.model_dump()),
        corrections=OffPolicyCorrections(**correction.model_dump()),
        kl=KlPenalty(**kl.model_dump()),
    )
