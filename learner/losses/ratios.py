"""Log-ratios of two policies, and their means over sequences.  Pure tensor functions; ``N`` tokens with loss."""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""exp of it is finite in float32, and no clip range reaches it."""


def clamp_log_ratio(log_ratio_N: Tensor) -> Tensor:
    """Within ± :data:`LARGEST_LOG_RATIO`; beyond, without gradient."""
    return log_ratio_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def sequence_sums(values_N: Tensor, sequence_N: Tensor) -> Tensor:
    """[N] Sum by sequence: sequence ``s`` at place ``s``, zeros behind the last one."""
    return torch.zeros_like(values_N).index_add(0, sequence_N, values_N)


def sequence_means(values_N: Tensor, sequence_N: Tensor, keep_N: Tensor) -> Tensor:
    """For each token the mean of its sequence's ``values_N`` where ``keep_N`` (bool) is true; 0 where it is nowhere."""
    kept_N = keep_N.to(values_N.dtype)
    total = sequence_sums(torch.where(keep_N, values_N, 0.0), sequence_N)
    count = sequence_sums(kept_N, sequence_N).clamp_min(1.0)
    return (total / count)[sequence_N]
