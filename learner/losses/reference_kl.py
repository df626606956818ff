"""KL penalty to frozen reference weights.  Pure tensor functions; ``N`` tokens with loss."""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

from torch import Tensor

from learner.losses.ratios import clamp_log_ratio
from learner.losses.settings import KlEstimator


def reference_kl(current_N: Tensor, reference_N: Tensor, kind: KlEstimator) -> Tensor:
    """Return estimates of KL(π_θ‖π_ref) from tokens that π_θ sampled, with x = log π_ref − log π_θ (Schulman,
    "Approximating
    KL divergence")::

        k1 = −x        k2 = x² ÷ 2        k3 = eˣ − 1 − x  (GRPO, arXiv 2402.03300, eq. 4)

    k1's own gradient, that of log π_θ, is 0 in expectation and would only add noise: it has the value of k1 and the
    gradient of k2, which is that of k1 as a part of the reward (arXiv 2510.01555)."""
    x_N = clamp_log_ratio(reference_N - current_N)
    if kind is KlEstimator.K3:
        return x_N.exp() - 1 - x_N
    k2_N = x_N.square() / 2
    return k2_N if kind is KlEstimator.K2 else k2_N + (-x_N - k2_N).detach()
