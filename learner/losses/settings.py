"""Settings of the objective: the policy loss, reward shaping, off-policy corrections and the KL penalty.

Formulas and their sources are with the functions, in :mod:`learner.losses.surrogates`,
:mod:`learner.losses.advantages`, :mod:`learner.losses.aggregation`, :mod:`learner.losses.corrections`,
:mod:`learner.losses.reference_kl` and :mod:`learner.losses.reward_shaping`.  Importing this module loads no torch.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from protocol.settings import ConfigSection, CountInt, PositiveInt


class LossType(StrEnum):
    """The term of the objective for a token, from its ratio and advantage."""

    CLIP = "clip"
    """The clipped ratio of each token with asymmetric bounds and a dual clip (DAPO)."""
    GSPO = "gspo"
    """The clipped ratio with one ratio for all tokens of a sequence."""
    CISPO = "cispo"
    """The clipped ratio as a weight of log π, so that no token loses its gradient."""
    DPPO_TV = "dppo_tv"
    """The ratio, without the tokens whose probability has moved too far in the advantage's direction."""
    REINFORCE = "reinforce"
    """min(π ÷ μ, tis_cap) · A · log π: truncated importance sampling."""


class LossAggregation(StrEnum):
    """Normalisation of the loss over tokens."""

    TOKEN_MEAN = "token_mean"  # noqa: S105  tokens of text
    """Every sampled token of the batch has the same share (DAPO)."""
    SEQUENCE_MEAN = "sequence_mean"
    """Every trajectory has the same share, divided evenly among its sampled tokens (GRPO)."""
    CONSTANT = "constant"
    """Every token has 1 ÷ (trajectories · aggregation_tokens), however long its trajectory is (Dr. GRPO)."""


class AdvantageEstimator(StrEnum):
    """Estimators of advantages from rewards."""

    GROUP = "group"
    """(r − mean) ÷ std of the group (GRPO)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """r − mean of the group's other members (RLOO)."""
    NO_STD = "no_std"
    """r − mean of the group (Dr. GRPO)."""
    BATCH = "batch"
    """(r − mean) ÷ std of the whole batch (SETA)."""
    TURN = "turn"
    """(r − mean) ÷ std of the group's model turns with the same index, where r includes the turn's own reward
    (OpenClaw)."""


class ProximalPolicy(StrEnum):
    """The policy around which the ratio is bounded."""

    NONE = "none"
    """The behaviour policy, which sampled the tokens."""
    RECOMPUTED = "recomputed"
    """The weights before the batch's first update, by one more forward pass."""
    LOG_LINEAR = "log_linear"
    """A point between the behaviour and the current policy, chosen by the token's staleness, without a forward pass."""


class KlEstimator(StrEnum):
    """The estimator of KL(π‖reference) for each token."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class PolicyLossSettings(ConfigSection):
    """The policy loss: advantages, the surrogate with its bounds, aggregation and the number of updates."""

    eps_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """A token's ratio is clipped below 1 − eps_low where its advantage is negative."""
    eps_high: Annotated[float, Field(gt=0)] = 0.28
    """A token's ratio is clipped above 1 + eps_high where its advantage is positive (clip-higher, DAPO)."""
    dual_clip: Annotated[float, Field(gt=1)] = 3.0
    """Upper bound of the ratio where the advantage is negative."""
    loss: LossType = LossType.CLIP
    """Surrogate loss of the policy gradient."""
    tis_cap: Annotated[float, Field(gt=0)] | None = None
    """Cap of the importance weight in the loss ``reinforce``, min(ratio, tis_cap) · A · log π, which has no other
    clip."""
    tv_bound: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Largest change of a token's probability in the advantage's direction in the loss ``dppo_tv``."""
    aggregation: LossAggregation = LossAggregation.TOKEN_MEAN
    """Share of each token in the loss: ``token_mean``, ``sequence_mean``, or ``constant`` (Dr. GRPO)."""
    aggregation_tokens: CountInt = 0
    """Divisor of the aggregation ``constant``, for example the most tokens that a trajectory can sample."""
    minibatches: PositiveInt = 1
    """Optimizer updates on each batch, which is split among them; together they are one step."""
    advantage: AdvantageEstimator = AdvantageEstimator.GROUP
    """Advantage estimator: ``group``, ``leave_one_out``, ``no_std``, ``batch``, or ``turn``."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        found: list[str] = []
        if self.dual_clip <= 1 + self.eps_high:
            found.append(
                f"learner.dual_clip = {self.dual_clip} is not above 1 + eps_high = {1 + self.eps_high}: "
                "set learner.dual_clip = 3.0"
            )
        if self.loss is LossType.REINFORCE and self.tis_cap is None:
            found.append("learner.loss = 'reinforce' needs a bound for its weight: set learner.tis_cap = 2.0")
        if self.loss is not LossType.REINFORCE and self.tis_cap is not None:
            found.append(
                f"learner.tis_cap = {self.tis_cap} applies to the loss reinforce only: set learner.loss = 'reinforce', "
                "or remove tis_cap"
            )
        if self.aggregation is LossAggregation.CONSTANT and self.aggregation_tokens < 1:
            found.append(
                "learner.aggregation = 'constant' divides by learner.aggregation_tokens: set that to the most tokens "
                "that a trajectory samples"
            )
        if found:
            raise ValueError("; also: ".join(found))
        return self


class RewardShapingSettings(ConfigSection):
    """Changes of an episode's reward (with ``learner.advantage = "turn"``, plus a turn's own) before advantages are
    computed.  Groups without reward variance are dropped before, by their unshaped rewards."""

    bias: float = 0.0
    """Added to the reward."""
    scale: float = 1.0
    """Factor by which the sum of reward and bias is multiplied."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """Bound of the absolute value after bias and scale; without it there is no bound."""
    overlong_tokens: CountInt = 0
    """Sampled tokens of a trajectory at which ``overlong_factor`` is subtracted from the reward; 0 for no penalty."""
    overlong_buffer: CountInt = 0
    """Number of tokens before ``overlong_tokens`` over which the penalty grows from 0."""
    overlong_factor: Annotated[float, Field(ge=0)] = 1.0
    """Penalty at ``overlong_tokens``, in units of the reward before bias and scale."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        found: list[str] = []
        if self.scale == 0:
            found.append("shaping.scale = 0 makes every reward the same: set shaping.scale = 1.0")
        if self.overlong_tokens and not 0 < self.overlong_buffer <= self.overlong_tokens:
            found.append(
                f"shaping.overlong_buffer = {self.overlong_buffer}: set it between 1 and shaping.overlong_tokens = "
                f"{self.overlong_tokens}"
            )
        if found:
            raise ValueError("; also: ".join(found))
        return self


class CorrectionSettings(ConfigSection):
    """Corrections for the gap between the weights that sampled a token and the weights that train on it."""

    proximal: ProximalPolicy = ProximalPolicy.NONE
    """Policy around which the ratio is bounded: ``none``, the one that sampled; ``recomputed``, the weights before the
    batch's first update (one more forward pass, and learner.minibatches = 2 or more); ``log_linear``, in between by the
    token's staleness."""
    cap: Annotated[float, Field(gt=0)] = 5.0
    """Bound of the weight π_prox ÷ μ that comes with a proximal policy."""
    band: tuple[float, float] | None = None
    """IcePop: tokens whose π ÷ μ is outside this interval get no loss; for example [0.5, 2.0]."""
    opsm: Annotated[float, Field(ge=0)] | None = None
    """Off-policy sequence masking: sequences with negative advantages whose mean of log μ − log π is above this value
    get no loss."""
    m2po: Annotated[float, Field(gt=0)] | None = None
    """M2PO: the tokens with the largest (log π − log μ)² lose their loss until the batch's mean of it is at most this
    value (one more forward pass); for example 0.04."""

    @model_validator(mode="after")
    def _check_band(self) -> Self:
        if self.band is not None and not 0 <= self.band[0] < 1 < self.band[1]:
            raise ValueError(
                f"correction.band = {self.band}: a ratio of 1 has to be inside: set correction.band = [0.5, 2.0]"
            )
        return self


class KlPenaltySettings(ConfigSection):
    """A penalty for moving away from reference weights."""

    coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the penalty in the loss; 0 keeps no reference.  Otherwise each step takes one more forward pass, and
    each rank's host memory holds a second model, unless adapters are trained (``lora.rank``): then the base model is
    the reference."""
    reference: Path | None = None
    """Hugging Face folder of the reference, a model of the same shape; without one the reference is the weights with
    which reinforcement learning begins.  Not with adapters."""
    estimator: KlEstimator = KlEstimator.K3
    """Estimator of the KL divergence.  All have a non-negative expectation; k3 has the least variance."""
