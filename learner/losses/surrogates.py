"""Surrogate objectives per token.  Pure tensor functions.

Shapes: ``N`` tokens with loss of one micro-batch.  ``gap_N`` is log π_θ − log π_anchor with the gradient of π_θ; the
anchor is the behaviour policy, or the proximal one.  ``keep_N`` is false for tokens that a correction masks.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses.corrections import capped_weights
from learner.losses.ratios import clamp_log_ratio, sequence_means
from learner.losses.settings import LossType, PolicyLossSettings
from learner.losses.token_columns import TokenColumns


class Surrogate(NamedTuple):
    value: Tensor
    """Objective [N], to be maximised."""
    high: Tensor
    """bool [N]: true if the upper bound clipped the chosen branch, which does not follow from the ratio alone."""
    low: Tensor
    dual: Tensor


def clipped_surrogate(gap_N: Tensor, advantages_N: Tensor, settings: PolicyLossSettings) -> Surrogate:
    """Return PPO's clipped ratio with asymmetric bounds (DAPO, arXiv 2503.14476, eq. 10) and the dual clip (arXiv
    1912.09729,
    eq. 5)::

        A ≥ 0:  min(r, 1 + eps_high) · A
        A < 0:  min(max(r, 1 − eps_low), dual_clip) · A

    A clipped token has no gradient."""
    ratio_N = clamp_log_ratio(gap_N).exp()
    bounded_N = ratio_N.clamp(1.0 - settings.eps_low, 1.0 + settings.eps_high)
    objective_N = torch.minimum(ratio_N * advantages_N, bounded_N * advantages_N)
    positive_N, negative_N = advantages_N > 0, advantages_N < 0
    objective_N = torch.where(negative_N, torch.maximum(objective_N, settings.dual_clip * advantages_N), objective_N)
    return Surrogate(
        objective_N,
        positive_N & (ratio_N > 1 + settings.eps_high),
        negative_N & (ratio_N < 1 - settings.eps_low),
        negative_N & (ratio_N > settings.dual_clip),
    )


def sequence_clipped_surrogate(
    gap_N: Tensor, advantages_N: Tensor, sequence_N: Tensor, keep_N: Tensor, settings: PolicyLossSettings
) -> Surrogate:
    """Return :func:`clipped_surrogate` with one ratio for all tokens of a sequence, exp of the mean of its tokens'
    log-ratios (GSPO, arXiv 2507.18071, eq. 5 to 7).  The mean is over tokens that keep their loss."""
    return clipped_surrogate(sequence_means(clamp_log_ratio(gap_N), sequence_N, keep_N), advantages_N, settings)


def weighted_clip_surrogate(
    gap_N: Tensor, current_N: Tensor, advantages_N: Tensor, settings: PolicyLossSettings
) -> Surrogate:
    """Return clip(r, 1 − eps_low, 1 + eps_high) · A · log π_θ, the weight without gradient (CISPO, arXiv 2506.13585,
    eq. 4 and 5).  Clipping reduces the weight and keeps the gradient."""
    ratio_N = clamp_log_ratio(gap_N.detach()).exp()
    low, high = 1.0 - settings.eps_low, 1.0 + settings.eps_high
    return Surrogate(
        ratio_N.clamp(low, high) * advantages_N * current_N,
        ratio_N > high,
        ratio_N < low,
        torch.zeros_like(ratio_N, dtype=torch.bool),
    )


def total_variation_surrogate(
    gap_N: Tensor, current_N: Tensor, advantages_N: Tensor, settings: PolicyLossSettings
) -> Surrogate:
    """Return r · A, without gradient for tokens whose probability has moved by more than ``tv_bound`` in the direction
    of the advantage: A > 0 and π − μ > bound, or A ≤ 0 and π − μ < −bound (DPPO, arXiv 2602.04879, binary total
    variation)."""
    moved_N = current_N.detach().exp() - (current_N - gap_N).detach().exp()
    high_N = (advantages_N > 0) & (moved_N > settings.tv_bound)
    low_N = (advantages_N <= 0) & (moved_N < -settings.tv_bound)
    objective_N = clamp_log_ratio(gap_N).exp() * advantages_N
    return Surrogate(
        torch.where(high_N | low_N, objective_N.detach(), objective_N), high_N, low_N, torch.zeros_like(high_N)
    )


def truncated_reinforce_surrogate(gap_N: Tensor, current_N: Tensor, advantages_N: Tensor, cap: float) -> Surrogate:
    """Return min(π ÷ μ, cap) · A · log π_θ, the weight without gradient (IMPALA's policy gradient, arXiv 1802.01561,
    section 4.2).  The cap counts as the upper bound."""
    gap_N = gap_N.detach()
    nowhere_N = torch.zeros_like(gap_N, dtype=torch.bool)
    return Surrogate(
        capped_weights(gap_N, cap) * advantages_N * current_N, clamp_log_ratio(gap_N).exp() > cap, nowhere_N, nowhere_N
    )


def compute_surrogate(
    current_N: Tensor, anchor_N: Tensor, tokens: TokenColumns[Tensor], keep_N: Tensor, settings: PolicyLossSettings
) -> Surrogate:
    """Return the surrogate of ``settings.loss``; ``current_N`` is log π_θ with gradient, ``anchor_N`` the anchor's log
    π."""
    gap_N, advantages_N = current_N - anchor_N, tokens.advantages
    match settings.loss:
        case LossType.CLIP:
            return clipped_surrogate(gap_N, advantages_N, settings)
        case LossType.GSPO:
            return sequence_clipped_surrogate(gap_N, advantages_N, tokens.sequence, keep_N, settings)
        case LossType.CISPO:
            return weighted_clip_surrogate(gap_N, current_N, advantages_N, settings)
        case LossType.DPPO_TV:
            return total_variation_surrogate(gap_N, current_N, advantages_N, settings)
        case LossType.REINFORCE:
            return truncated_reinforce_surrogate(gap_N, current_N, advantages_N, settings.tis_cap or 1.0)
