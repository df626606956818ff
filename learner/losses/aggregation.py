"""A token's share of the loss, fixed when the batch is read.

Tokens that lose their loss (too old, or by a correction) keep their share: a mask takes weight away and gives none to
others.
"""

from __future__ import annotations

from collections.abc import Sequence

from learner.losses.settings import LossAggregation


def token_loss_weights(sampled: Sequence[int], kind: LossAggregation, constant: int = 0) -> list[float]:
    """For each trajectory of the global batch, by its sampled tokens, the share of each of its tokens::

    token_mean     1 ÷ Σ sampled                          (DAPO, arXiv 2503.14476, eq. 12)
    sequence_mean  1 ÷ (trajectories · own sampled)       (GRPO, arXiv 2402.03300, eq. 3)
    constant       1 ÷ (trajectories · constant)          (Dr. GRPO, arXiv 2503.20783, section 3.2)
    """
    if kind is LossAggregation.TOKEN_MEAN:
        return [1.0 / max(1, sum(sampled))] * len(sampled)
    if kind is LossAggregation.SEQUENCE_MEAN:
        return [1.0 / (len(sampled) * max(1, tokens)) for tokens in sampled]
    return [1.0 / (len(sampled) * constant)] * len(sampled)
