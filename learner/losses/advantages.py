"""Computes advantages from the rewards of a batch.  Pure tensor functions.

Shapes: ``M`` rewards, one per trajectory or per model turn; ``pools_M`` int64 labels the rewards that are compared with
each other: members of a group, turns of one index in a group, or the whole batch.  A pool of one, or without variance,
has advantage 0.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import torch
from torch import Tensor

from learner.losses.settings import AdvantageEstimator
from learner.tensors import labels_to_indices

_STD_EPS = 1e-6


def compute_advantages(rewards_M: Tensor, pools_M: Tensor, kind: AdvantageEstimator) -> Tensor:
    """Return advantages, float32 [M].  ``leave_one_out``: r − mean of the pool's others (RLOO, arXiv 2402.14740).
    ``no_std``: r − mean (Dr. GRPO, arXiv 2503.20783).  All else: (r − mean) ÷ (std + 1e-6), std with n − 1: over a
    group (GRPO, arXiv 2402.03300, section 4.1.2), a batch (REINFORCE++, arXiv 2501.03262; AReaL's ``adv_norm``, as SETA
    sets it), or a group's turns of one index (OpenClaw's ``step_wise``)."""
    rewards = rewards_M.double()
    index_M = labels_to_indices(pools_M)
    pools = int(index_M.max()) + 1 if index_M.numel() else 0
    count_P = torch.bincount(index_M, minlength=pools).double()
    mean_P = torch.zeros(pools, dtype=torch.float64).index_add_(0, index_M, rewards) / count_P
    centred_M = rewards - mean_P[index_M]
    squares_P = torch.zeros(pools, dtype=torch.float64).index_add_(0, index_M, centred_M.square())
    others_P = (count_P - 1).clamp_min(1)
    if kind is AdvantageEstimator.LEAVE_ONE_OUT:
        result_M = centred_M * (count_P / others_P)[index_M]
    elif kind is AdvantageEstimator.NO_STD:
        result_M = centred_M
    else:
        result_M = centred_M / ((squares_P / others_P).sqrt() + _STD_EPS)[index_M]
    return result_M.masked_fill(squares_P[index_M] < _STD_EPS**2, 0.0).float()
