"""Loss weights of tokens, fixed when the batch is read.

Tokens whose loss is removed (by staleness or a correction) keep their weight: a mask never increases the weight of
other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from learner.losses.settings import LossAggregation


def token_loss_weights(sampled: Sequence[int], kind: LossAggregation, constant: int = 0) -> list[float]:
    """Return the loss weight per token for each trajectory of the global batch, from its number of sampled tokens::

    token_mean     1 ÷ Σ sampled                          (DAPO, arXiv 2503.14476, eq. 12)
    sequence_mean  1 ÷ (trajectories · own sampled)       (GRPO, arXiv 2402.03300, eq. 3)
    constant       1 ÷ (trajectories · constant)          (Dr. GRPO, arXiv 2503.20783, section 3.2)
    """
    if kind is LossAggregation.TOKEN_MEAN:
        return [1.0 / max(1, sum(sampled))] * len(sampled)
    if kind is LossAggregation.SEQUENCE_MEAN:
        return [1.0 / (len(sampled) * max(1, tokens)) for tokens in sampled]
    return [1.0 / (len(sampled) * constant)] * len(sampled)
