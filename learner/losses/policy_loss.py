"""The loss of one micro-batch and its metrics.  Pure tensor functions.

A loss is −Σ weight · objective over tokens; the weights are normalised over the whole batch, so the losses of
micro-batches and ranks add up to the batch's.

Shapes: ``N`` tokens with loss of one micro-batch, in the dtype of the log-probabilities.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses.corrections import band_mask, capped_weights, log_linear_proximal, off_policy_sequence_mask
from learner.losses.metrics import LossObservations, MetricSums, sum_likelihood_metrics, sum_policy_metrics
from learner.losses.objective import Objective
from learner.losses.reference_kl import reference_kl
from learner.losses.settings import ProximalPolicy
from learner.losses.surrogates import Surrogate, compute_surrogate
from learner.losses.token_columns import TokenColumns
from protocol.run_directory.trained_log import TokenLossFlag


class LossResult(NamedTuple):
    loss: Tensor
    """Scalar, with gradient."""
    sums: MetricSums
    loss_flags: Tensor | None = None
    """uint8 [N]: :class:`protocol.run_directory.trained_log.TokenLossFlag` of each token."""


def policy_loss(
    current_N: Tensor, tokens: TokenColumns[Tensor], objective: Objective, entropy_N: Tensor | None = None
) -> LossResult:
    """Return the loss of ``objective``.

    The ratio is clipped around the anchor: μ, the recorded behaviour, or the proximal policy, in which case the
    objective is weighted with min(π_prox ÷ μ, cap) (decoupled PPO, arXiv 2110.00641).  A token that a correction masks
    adds nothing, and its weight is not redistributed.
    """
    proximal_N = _proximal(current_N, tokens, objective)
    anchor_N = tokens.behaviour if proximal_N is None else proximal_N
    gap_N = current_N.detach() - tokens.behaviour
    mismatch_N = gap_N if proximal_N is None else proximal_N - tokens.behaviour
    masks = _correction_masks(gap_N, mismatch_N, tokens, objective)
    keep_N = torch.stack([torch.ones_like(tokens.sequence, dtype=torch.bool), *masks.values()]).all(0)
    made = compute_surrogate(current_N, anchor_N, tokens, keep_N, objective.policy_loss)
    value_N = made.value
    if proximal_N is not None:
        value_N = value_N * capped_weights(mismatch_N, objective.corrections.cap)
    loss = -(tokens.weights * torch.where(keep_N, value_N, 0.0)).sum()
    kl_N = None
    if tokens.reference is not None:
        kl_N = reference_kl(current_N, tokens.reference, objective.kl.estimator)
        loss = loss + objective.kl.coefficient * (tokens.weights * kl_N).sum()
    with torch.no_grad():
        sums = sum_policy_metrics(loss, gap_N, tokens, made, LossObservations(masks, keep_N, kl_N, entropy_N))
        return LossResult(loss, sums, _loss_flags(made, keep_N))


def _proximal(current_N: Tensor, tokens: TokenColumns[Tensor], objective: Objective) -> Tensor | None:
    match objective.corrections.proximal:
        case ProximalPolicy.NONE:
            return None
        case ProximalPolicy.RECOMPUTED:
            return tokens.proximal
        case ProximalPolicy.LOG_LINEAR:
            return log_linear_proximal(current_N, tokens.behaviour, tokens.staleness)


def _correction_masks(
    gap_N: Tensor, mismatch_N: Tensor, tokens: TokenColumns[Tensor], objective: Objective
) -> dict[str, Tensor]:
    """Return correction → bool [N], false where it masks a token.  ``gap_N`` is log π − log μ of the current weights,
    ``mismatch_N`` of the proximal policy if there is one."""
    corrections, found = objective.corrections, dict[str, Tensor]()
    if corrections.band is not None:
        found["band"] = band_mask(mismatch_N, *corrections.band)
    if corrections.opsm is not None:
        found["opsm"] = off_policy_sequence_mask(gap_N, tokens.advantages, tokens.sequence, corrections.opsm)
    if tokens.keep is not None:
        found["m2po"] = tokens.keep
    return found


def _loss_flags(made: Surrogate, keep_N: Tensor) -> Tensor:
    """Return the loss flags of each token; a token that a correction masked was not clipped."""
    clipped = {
        TokenLossFlag.HIGH: made.high & keep_N,
        TokenLossFlag.LOW: made.low & keep_N,
        TokenLossFlag.DUAL: made.dual & keep_N,
    }
    every = clipped | {TokenLossFlag.CORRECTED: ~keep_N}
    return torch.stack([bits * mark.value for mark, bits in every.items()]).sum(0).to(torch.uint8)


def likelihood_loss(current_N: Tensor, tokens: TokenColumns[Tensor]) -> LossResult:
    """Return the loss of supervised fine-tuning: −Σ weight · log π."""
    loss = -(tokens.weights * current_N).sum()
    return LossResult(loss, sum_likelihood_metrics(loss, current_N))
