"""Corrections for the gap between the weights that sampled and the weights that train.  Pure tensor functions.

Shapes: ``N`` tokens with loss, float32.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""exp of it is finite in float32, and no clip range reaches it."""


def truncated_importance_weights(current_N: Tensor, behaviour_N: Tensor, cap: float) -> Tensor:
    """min(π ÷ μ, cap) without gradient: the weight of a plain policy gradient (IMPALA's ρ̄, arXiv 1802.01561, eq. 1).

    ``current_N`` log π of the weights before the step, ``behaviour_N`` log μ as recorded."""
    gap_N = (current_N.detach() - behaviour_N).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return torch.exp(gap_N).clamp_max(cap)
