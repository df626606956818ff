"""The policy loss and every number said about it.  Pure tensor functions.

Shapes: ``N`` tokens with loss of one micro-batch, float32.  Metrics travel as sums, so that micro-batches and ranks add
up; :func:`summarise` divides.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from learner.corrections import LARGEST_LOG_RATIO, truncated_importance_weights
from learner.tensors import floats

SUMS = ("loss", "tokens", "clip_high", "clip_low", "clip_dual", "kl_k1", "kl_k3", "ratio", "ratio_squared", "entropy")
"""Order of :attr:`LossResult.sums`."""


@dataclass(frozen=True, slots=True)
class Clip:
    """The ratio's trust region."""

    low: float = 0.2
    high: float = 0.28
    dual: float = 3.0


class LossResult(NamedTuple):
    loss: Tensor
    """Scalar; the sum over micro-batches and ranks is the batch's loss."""
    sums: Tensor
    """float64 [len(SUMS)]"""
    mismatch_max: Tensor
    """Largest |log π − log μ|."""


def policy_loss(
    logprobs_N: Tensor,
    behaviour_N: Tensor,
    advantages_N: Tensor,
    *,
    denominator: float,
    clip: Clip,
    entropy_N: Tensor | None = None,
    tis_cap: float | None = None,
) -> LossResult:
    """PPO's clipped surrogate with ratio r = π ÷ μ to the recorded behaviour, asymmetric bounds (DAPO, arXiv
    2503.14476, eq. 10) and the dual clip (arXiv 1912.09729, eq. 5)::

        A ≥ 0:  min(r, 1 + high) · A
        A < 0:  min(max(r, 1 − low), dual) · A

    ``denominator`` is the number of sampled tokens of the *global* batch: those masked as stale are in it, so that a
    mask takes weight away and gives none to others.  With ``tis_cap`` the surrogate is min(π ÷ μ, cap) · A · log π in
    place of the clipped ratio.  Clip fractions count the tokens whose gradient the bound removed."""
    gap_N = logprobs_N - behaviour_N
    bounded_N = gap_N.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    ratio_N = bounded_N.exp()
    if tis_cap is None:
        clipped_N = ratio_N.clamp(1.0 - clip.low, 1.0 + clip.high)
        objective_N = torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
        negative_N = advantages_N < 0
        objective_N = torch.where(negative_N, torch.maximum(objective_N, clip.dual * advantages_N), objective_N)
    else:
        weights_N = truncated_importance_weights(logprobs_N, behaviour_N, tis_cap)
        objective_N = weights_N * advantages_N * logprobs_N
    loss = -objective_N.sum() / denominator
    with torch.no_grad():
        sums = _sums(loss, bounded_N, ratio_N, advantages_N, clip=clip, entropy_N=entropy_N)
        mismatch_max = gap_N.abs().max() if gap_N.numel() else gap_N.new_zeros(())
    return LossResult(loss, sums, mismatch_max)


def _sums(
    loss: Tensor, gap_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, *, clip: Clip, entropy_N: Tensor | None
) -> Tensor:
    positive_N, negative_N = advantages_N > 0, advantages_N < 0
    values = (
        loss.detach(),
        gap_N.new_full((), gap_N.numel()),
        (positive_N & (ratio_N > 1 + clip.high)).sum(),
        (negative_N & (ratio_N < 1 - clip.low)).sum(),
        (negative_N & (ratio_N > clip.dual)).sum(),
        -gap_N.sum(dtype=torch.float64),
        (ratio_N - 1 - gap_N).sum(dtype=torch.float64),
        ratio_N.sum(dtype=torch.float64),
        ratio_N.double().square().sum(),
        entropy_N.detach().sum(dtype=torch.float64) if entropy_N is not None else gap_N.new_zeros(()),
    )
    return torch.stack([value.double() for value in values])


def summarise(sums: Tensor, mismatch_max: float) -> dict[str, float]:
    """Metrics of the whole batch from the added sums: ``loss``; fractions ``clip_high``, ``clip_low``, ``clip_dual``;
    ``kl_k1`` and ``kl_k3``, estimates of KL(μ‖π) (Schulman, "Approximating KL divergence"); ``ess``, the token-level
    effective sample size (Σr)² ÷ (N·Σr²); ``entropy``; ``mismatch_max``."""
    values = floats(sums)
    total = dict(zip(SUMS, values, strict=True))
    tokens = max(total["tokens"], 1.0)
    metrics = {
        name: total[name] / tokens for name in ("clip_high", "clip_low", "clip_dual", "kl_k1", "kl_k3", "entropy")
    }
    spread = tokens * total["ratio_squared"]
    return {
        "loss": total["loss"],
        **metrics,
        "ess": total["ratio"] ** 2 / spread if spread else 0.0,
        "mismatch_max": mismatch_max,
    }


def likelihood_loss(logprobs_N: Tensor, *, denominator: float) -> LossResult:
    """Supervised fine-tuning: −mean log π over the global batch's tokens with loss."""
    loss = -logprobs_N.sum() / denominator
    sums = torch.zeros(len(SUMS), dtype=torch.float64, device=loss.device)
    sums[0], sums[1] = loss.detach(), logprobs_N.numel()
    return LossResult(loss, sums, loss.new_zeros(()))
