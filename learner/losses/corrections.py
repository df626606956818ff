"""Corrections for the gap between the weights that sampled and the weights that train.  Pure tensor functions.

Shapes: ``N`` tokens with loss.  ``gap_N`` is log π − log μ, μ the recorded behaviour; nothing here has a gradient.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.losses.ratios import clamp_log_ratio, sequence_means
from learner.losses.token_columns import TokenArray


def capped_weights(gap_N: Tensor, cap: float) -> Tensor:
    """Return min(π ÷ μ, cap) without gradient (IMPALA's ρ̄, arXiv 1802.01561, eq. 1): truncated importance sampling if
    it multiplies log π, and the decoupled objective's π_prox ÷ μ (arXiv 2110.00641; capped as in AReaL, arXiv
    2505.24298, section 5.2)."""
    return clamp_log_ratio(gap_N.detach()).exp().clamp_max(cap)


def band_mask(gap_N: Tensor, low: float, high: float) -> Tensor:
    """Return bool [N], true where low ≤ π ÷ μ ≤ high: IcePop's M (arXiv 2510.18855).  Inside the band the weight π ÷ μ
    is the ratio itself, or :func:`capped_weights`."""
    ratio_N = clamp_log_ratio(gap_N.detach()).exp()
    return (ratio_N >= low) & (ratio_N <= high)


def off_policy_sequence_mask(gap_N: Tensor, advantages_N: Tensor, sequence_N: Tensor, bound: float) -> Tensor:
    """Return bool [N], false for tokens with a negative advantage in a sequence whose mean of log μ − log π is above
    ``bound`` (DeepSeek-V3.2's off-policy sequence masking, arXiv 2512.02556)."""
    everywhere_N = torch.ones_like(sequence_N, dtype=torch.bool)
    divergence_N = sequence_means(-clamp_log_ratio(gap_N.detach()), sequence_N, everywhere_N)
    return (advantages_N >= 0) | (divergence_N <= bound)


def log_linear_proximal(current_N: Tensor, behaviour_N: Tensor, staleness_N: Tensor) -> Tensor:
    """Return log π_prox = log μ + α (log π_θ − log μ) without gradient, α = s ÷ (s + 1) at a staleness of s: the
    approximate position of the policy one update before the current one on the way from the behaviour policy (AReaL,
    trainer/ppo/actor.py, ``compute_prox_logp_approximations``)."""
    staleness_N = staleness_N.to(current_N.dtype)
    return behaviour_N + staleness_N / (staleness_N + 1.0) * (current_N.detach() - behaviour_N)


def second_moment_mask(gap_N: TokenArray, bound: float) -> TokenArray:
    """Return bool [N] for ``gap_N`` of a whole batch (numpy), false for the fewest tokens with the largest (log π − log
    μ)² that leave a mean of at most ``bound`` over the rest (M2PO, arXiv 2510.01161; of equal ones the later are
    removed)."""
    squares = gap_N.astype(np.float64) ** 2
    order = np.argsort(squares, kind="stable")
    means = np.cumsum(squares[order]) / np.arange(1, len(order) + 1)
    keep = np.zeros(len(order), np.bool_)
    keep[order[: np.searchsorted(means, bound, side="right")]] = True
    return keep
