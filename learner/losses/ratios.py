"""Log-ratios of two policies, and their means over sequences.  Pure tensor functions; ``N`` tokens with loss."""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Largest log-ratio: its exp is finite in float32, and no clip range reaches it."""


def clamp_log_ratio(log_ratio_N: Tensor) -> Tensor:
    """Clamp to ± :data:`LARGEST_LOG_RATIO`, without gradient beyond."""
    return log_ratio_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def sequence_sums(values_N: Tensor, sequence_N: Tensor) -> Tensor:
    """Return sums by sequence, [N]: sequence ``s`` at index ``s``, zeros after the last one."""
    return torch.zeros_like(values_N).index_add(0, sequence_N, values_N)


def sequence_means(values_N: Tensor, sequence_N: Tensor, keep_N: Tensor) -> Tensor:
    """Return for each token the mean of its sequence's ``values_N`` where ``keep_N`` (bool) is true; 0 if it never
    is."""
    kept_N = keep_N.to(values_N.dtype)
    total = sequence_sums(torch.where(keep_N, values_N, 0.0), sequence_N)
    count = sequence_sums(kept_N, sequence_N).clamp_min(1.0)
    return (total / count)[sequence_N]
