"""The objective of a learner: the configuration sections that make up one loss.

Importing this module loads no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from learner.losses.settings import (
    CorrectionSettings,
    KlPenaltySettings,
    LossType,
    PolicyLossSettings,
    ProximalPolicy,
    RewardShapingSettings,
)
from protocol.errors import UserError


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a learner.  Raises UserError if its sections contradict each other."""

    policy_loss: PolicyLossSettings = field(default_factory=PolicyLossSettings)
    shaping: RewardShapingSettings = field(default_factory=RewardShapingSettings)
    corrections: CorrectionSettings = field(default_factory=CorrectionSettings)
    kl: KlPenaltySettings = field(default_factory=KlPenaltySettings)

    @property
    def needs_logprob_pass(self) -> bool:
        """True if the batch's log-probabilities are computed before its first update."""
        return self.corrections.proximal is ProximalPolicy.RECOMPUTED or self.corrections.m2po is not None

    def __post_init__(self) -> None:
        proximal, loss, found = self.corrections.proximal, self.policy_loss.loss, list[str]()
        if proximal is ProximalPolicy.RECOMPUTED and self.policy_loss.minibatches < 2:
            found.append(
                "correction.proximal = 'recomputed' with learner.minibatches = 1: the ratio to the weights before the "
                "batch's first update is 1 in that update, so nothing would ever be clipped: set learner.minibatches = "
                "2 or more, or correction.proximal = 'log_linear'"
            )
        if proximal is not ProximalPolicy.NONE and loss in {LossType.REINFORCE, LossType.DPPO_TV}:
            found.append(
                f"correction.proximal = '{proximal}' moves the bounds of a ratio, and learner.loss = '{loss}' is "
                "bounded around the policy that sampled: set correction.proximal = 'none', or learner.loss = 'clip'"
            )
        if found:
            raise UserError("; also: ".join(found))
