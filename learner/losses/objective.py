"""What is maximised: the loss, its bounds, its corrections and the shape of the reward.  Light: importing it loads no
torch.

Formulas stand with the functions: :mod:`learner.losses.policy_loss`, :mod:`learner.losses.corrections`, :mod:`learner.losses.advantages`,
:mod:`learner.losses.reward_shaping`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from protocol.errors import UserError


class LossType(StrEnum):
    """How a token's ratio and advantage become what is maximised; formulas in :mod:`learner.losses.policy_loss.surrogates`."""

    CLIP = "clip"
    """Clipped ratio of each token, asymmetric bounds, dual clip: DAPO."""
    GSPO = "gspo"
    """The same with one ratio for a sequence."""
    CISPO = "cispo"
    """The clipped ratio as a weight of log π: no token loses its gradient."""
    DPPO_TV = "dppo_tv"
    """The ratio, without tokens whose probability has moved too far in the advantage's direction."""
    REINFORCE = "reinforce"
    """min(π ÷ μ, tis_cap) · A · log π: truncated importance sampling."""


class LossAggregation(StrEnum):
    """What share of the loss a token has; see :func:`learner.losses.aggregation.token_shares`."""

    TOKEN_MEAN = "token_mean"  # noqa: S105  tokens of text
    """Each sampled token of the batch alike (DAPO)."""
    SEQUENCE_MEAN = "sequence_mean"
    """Each trajectory alike, and in it each of its sampled tokens (GRPO)."""
    CONSTANT = "constant"
    """Each token 1 ÷ (trajectories · aggregation_tokens), however long its trajectory is (Dr. GRPO)."""


class AdvantageEstimator(StrEnum):
    """How a reward becomes an advantage; formulas in :mod:`learner.losses.advantages`."""

    GROUP = "group"
    """(r − mean) ÷ std of the group: GRPO."""
    LEAVE_ONE_OUT = "leave_one_out"
    """r − mean of the others: RLOO."""
    NO_STD = "no_std"
    """r − mean of the group: Dr. GRPO."""
    BATCH = "batch"
    """(r − mean) ÷ std of the whole batch: SETA."""
    STEP = "step"
    """(r − mean) ÷ std of the model's turns of the same index in the group, r with the turn's own reward: OpenClaw."""


class ProximalPolicy(StrEnum):
    """The policy around which the ratio is bounded, where that is not the one that sampled."""

    NONE = "none"
    """Bounds are around the behaviour policy."""
    RECOMPUTED = "recomputed"
    """The weights before the batch's first update, by a forward pass of their own."""
    LOG_LINEAR = "log_linear"
    """Between behaviour and current policy, by the token's age, without a pass."""


class KlEstimator(StrEnum):
    """Of KL(π‖reference), by token; formulas in :mod:`learner.losses.policy_loss.reference_kl`."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


@dataclass(frozen=True, slots=True)
class RewardShaping:
    """From the episode's reward to the one that advantages are taken of."""

    bias: float = 0.0
    scale: float = 1.0
    clip: float | None = None
    """Bound of |(reward + bias) · scale|."""
    overlong_tokens: int = 0
    """Sampled tokens of a trajectory at which the penalty is ``overlong_factor``; 0 for no penalty."""
    overlong_buffer: int = 0
    """Tokens before ``overlong_tokens`` over which the penalty grows."""
    overlong_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.scale == 0 or (self.clip is not None and self.clip <= 0):
            raise UserError(
                f"shaping.scale = {self.scale}, shaping.clip = {self.clip}: set a scale that is not 0, a clip above 0"
            )
        if self.overlong_tokens and not 0 < self.overlong_buffer <= self.overlong_tokens:
            raise UserError(
                f"shaping.overlong_buffer = {self.overlong_buffer}: set it between 1 and shaping.overlong_tokens = "
                f"{self.overlong_tokens}"
            )


@dataclass(frozen=True, slots=True)
class KlPenalty:
    """Penalty for leaving the frozen reference weights."""

    coefficient: float = 0.0
    """0: no reference is kept."""
    estimator: KlEstimator = KlEstimator.K3

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimator", KlEstimator(self.estimator))
        if self.coefficient < 0:
            raise UserError(f"kl.coefficient = {self.coefficient}: it is a penalty, so 0 or above")


@dataclass(frozen=True, slots=True)
class OffPolicyCorrections:
    """For the gap between the weights that sampled and those that train; see :mod:`learner.losses.corrections`."""

    proximal: ProximalPolicy = ProximalPolicy.NONE
    cap: float = 5.0
    """Bound of the weight π_prox ÷ μ."""
    band: tuple[float, float] | None = None
    """IcePop: a token outside of these bounds of π ÷ μ gets no loss."""
    opsm: float | None = None
    """OPSM: a sequence with negative advantages and a mean of log μ − log π above this gets no loss."""
    m2po: float | None = None
    """M2PO: tokens lose their loss, those with the largest (log π − log μ)² first, until its mean is at most this."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "proximal", ProximalPolicy(self.proximal))
        if self.cap <= 0:
            raise UserError(f"correction.cap = {self.cap} bounds a weight that is above 0: set correction.cap = 5.0")
        if self.band is not None and not 0 <= self.band[0] < 1 < self.band[1]:
            raise UserError(
                f"correction.band = {self.band}: a ratio of 1 has to be inside: set correction.band = [0.5, 2.0]"
            )
        if (self.opsm is not None and self.opsm < 0) or (self.m2po is not None and self.m2po <= 0):
            raise UserError(
                f"correction.opsm = {self.opsm}, correction.m2po = {self.m2po}: set opsm to 0 or above, m2po above 0"
            )


@dataclass(frozen=True, slots=True)
class Objective:
    """Raises UserError where two values cannot go together."""

    loss: LossType = LossType.CLIP
    eps_low: float = 0.2
    """The ratio is clipped below at 1 − eps_low."""
    eps_high: float = 0.28
    """The ratio is clipped above at 1 + eps_high."""
    dual_clip: float = 3.0
    """Bound of the ratio where the advantage is negative."""
    tis_cap: float | None = None
    """Bound of the weight in the loss ``reinforce``, and only there."""
    tv_bound: float = 0.2
    """Farthest that a token's probability may have moved, in the loss ``dppo_tv``."""
    aggregation: LossAggregation = LossAggregation.TOKEN_MEAN
    aggregation_tokens: int = 0
    """The constant of the aggregation ``constant``: a trajectory's largest number of sampled tokens, say."""
    minibatches: int = 1
    """Optimizer updates on each batch."""
    advantage: AdvantageEstimator = AdvantageEstimator.GROUP
    shaping: RewardShaping = RewardShaping()
    corrections: OffPolicyCorrections = OffPolicyCorrections()
    kl: KlPenalty = KlPenalty()

    @property
    def needs_logprob_pass(self) -> bool:
        """Whether the batch's log-probabilities are taken before its first update."""
        return self.corrections.proximal is ProximalPolicy.RECOMPUTED or self.corrections.m2po is not None

    def __post_init__(self) -> None:
        # A plain string equals its enum member but is not it, and code elsewhere asks for identity.
        object.__setattr__(self, "loss", LossType(self.loss))
        object.__setattr__(self, "aggregation", LossAggregation(self.aggregation))
        object.__setattr__(self, "advantage", AdvantageEstimator(self.advantage))
        problems = [*self._loss_problems(), *self._proximal_problems()]
        if problems:
            raise UserError("; also: ".join(problems))

    def _loss_problems(self) -> list[str]:
        found: list[str] = []
        if not 0 < self.eps_low < 1 or self.eps_high <= 0:
            found.append(
                f"learner.eps_low = {self.eps_low}, learner.eps_high = {self.eps_high}: keep 0 < eps_low < 1 and "
                "0 < eps_high: set 0.2 and 0.28"
            )
        if self.dual_clip <= 1 + self.eps_high:
            found.append(
                f"learner.dual_clip = {self.dual_clip} is not above 1 + eps_high = {1 + self.eps_high}: "
                "set learner.dual_clip = 3.0"
            )
        if self.loss is LossType.REINFORCE and self.tis_cap is None:
            found.append("learner.loss = 'reinforce' needs the bound of its weight: set learner.tis_cap = 2.0")
        if self.loss is not LossType.REINFORCE and self.tis_cap is not None:
            found.append(
                f"learner.tis_cap = {self.tis_cap} is the loss reinforce's alone: set learner.loss = 'reinforce', or "
                "no tis_cap"
            )
        if self.tis_cap is not None and self.tis_cap <= 0:
            found.append(f"learner.tis_cap = {self.tis_cap} bounds a weight that is above 0: set learner.tis_cap = 2.0")
        if not 0 < self.tv_bound < 1:
            found.append(f"learner.tv_bound = {self.tv_bound} bounds a difference of probabilities: set 0.2")
        if self.aggregation is LossAggregation.CONSTANT and self.aggregation_tokens < 1:
            found.append(
                "learner.aggregation = 'constant' divides by learner.aggregation_tokens: set that to the most tokens "
                "that a trajectory samples"
            )
        if self.minibatches < 1:
            found.append(f"learner.minibatches = {self.minibatches}: a batch has at least one update: set 1")
        return found

    def _proximal_problems(self) -> list[str]:
        proximal = self.corrections.proximal
        found: list[str] = []
        if proximal is ProximalPolicy.RECOMPUTED and self.minibatches < 2:
            found.append(
                "correction.proximal = 'recomputed' with learner.minibatches = 1: the ratio to the weights before the "
                "batch's first update is 1 in that update, so no bound would ever hold: set learner.minibatches = 2 or "
                "more, or correction.proximal = 'log_linear'"
            )
        if proximal is not ProximalPolicy.NONE and self.loss in {LossType.REINFORCE, LossType.DPPO_TV}:
            found.append(
                f"correction.proximal = '{proximal}' moves the bounds of a ratio, and learner.loss = '{self.loss}' is "
                "bounded around the policy that sampled: set correction.proximal = 'none', or learner.loss = 'clip'"
            )
        return found
