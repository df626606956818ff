"""From the rewards of a batch to one advantage per trajectory.  Pure tensor functions.

Shapes: ``M`` trajectories; ``rewards_M`` float32, ``groups_M`` int64 (any labels).  A group is whoever is present with
the same label; a group of one, or without variance, has advantage 0.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

import torch
from torch import Tensor

from learner.settings import Advantage
from learner.tensors import labels_to_indices

_STD_EPS = 1e-6


def advantages(rewards_M: Tensor, groups_M: Tensor, kind: Advantage) -> Tensor:
    """``group``: (r − mean) ÷ (std + 1e-6), std with n − 1 (GRPO, arXiv 2402.03300, section 4.1.2).  ``loo``: r − mean
    of the group's others (RLOO, arXiv 2402.14740).  ``no_std``: r − mean (Dr. GRPO, arXiv 2503.20783)."""
    rewards = rewards_M.double()
    index_M = labels_to_indices(groups_M)
    groups = int(index_M.max()) + 1 if index_M.numel() else 0
    count_G = torch.bincount(index_M, minlength=groups).double()
    mean_G = torch.zeros(groups, dtype=torch.float64).index_add_(0, index_M, rewards) / count_G
    centred_M = rewards - mean_G[index_M]
    squares_G = torch.zeros(groups, dtype=torch.float64).index_add_(0, index_M, centred_M.square())
    others_G = (count_G - 1).clamp_min(1)
    if kind is Advantage.GROUP:
        result_M = centred_M / ((squares_G / others_G).sqrt() + _STD_EPS)[index_M]
    elif kind is Advantage.LEAVE_ONE_OUT:
        result_M = centred_M * (count_G / others_G)[index_M]
    else:
        result_M = centred_M
    return result_M.masked_fill(squares_G[index_M] < _STD_EPS**2, 0.0).float()
