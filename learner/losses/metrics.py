"""All metrics of an update.  Pure tensor functions.

Micro-batches and ranks give sums and maxima, which are combined; :func:`summarise_metrics` divides at the end.
Shapes: ``N`` tokens with loss of one micro-batch; ``gap_N`` is log π − log μ of the current weights.
"""
# ruff: noqa: N803, N806 - shape suffixes

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from learner.losses.objective import Objective
from learner.losses.ratios import clamp_log_ratio, sequence_sums
from learner.losses.token_columns import TokenColumns
from learner.tensors import floats

if TYPE_CHECKING:
    from learner.losses.surrogates import Surrogate

TOKEN_MEANS = (
    *("clip_high", "clip_low", "clip_dual", "kl_k1", "kl_k3", "entropy", "kl_reference"),
    *("masked_band", "masked_opsm", "masked_m2po"),
)
"""Sums that are reported as means over tokens."""
SUM_NAMES = (
    *("loss", "tokens", "sequences", "ratio", "ratio_squared", "weight", "weight_squared"),
    *("own_tokens", "own_k3"),
    *TOKEN_MEANS,
)
"""Order of :attr:`MetricSums.totals`; ``ratio`` is a token's π ÷ μ, ``weight`` a sequence's product of them."""
MAXIMUM_NAMES = ("mismatch_max",)
"""Order of :attr:`MetricSums.largest`: |log π − log μ|."""


class MetricSums(NamedTuple):
    totals: Tensor
    """float64 [len(SUM_NAMES)]"""
    largest: Tensor
    """float64 [len(MAXIMUM_NAMES)]"""

    def add(self, other: MetricSums) -> MetricSums:
        """Return the sums of both."""
        return MetricSums(self.totals + other.totals, torch.maximum(self.largest, other.largest))


class LossObservations(NamedTuple):
    """Intermediate values of the loss besides the ratios."""

    masks: Mapping[str, Tensor]
    """Correction → bool [N], false where it removes a token's loss."""
    keep: Tensor
    """bool [N]: all masks combined."""
    kl: Tensor | None
    entropy: Tensor | None


def empty_sums(device: torch.device) -> MetricSums:
    """Return the sums over no tokens."""
    return MetricSums(
        torch.zeros(len(SUM_NAMES), dtype=torch.float64, device=device),
        torch.zeros(len(MAXIMUM_NAMES), dtype=torch.float64, device=device),
    )


def sum_policy_metrics(
    loss: Tensor, gap_N: Tensor, tokens: TokenColumns[Tensor], made: Surrogate, seen: LossObservations
) -> MetricSums:
    """Return the sums of one micro-batch."""
    log_ratio_N = clamp_log_ratio(gap_N).double()
    ratio_N = log_ratio_N.exp()
    sequences = tokens.sequence[-1] + 1 if tokens.sequence.numel() else tokens.sequence.sum()
    exists_N = torch.arange(len(gap_N), device=gap_N.device) < sequences
    weight_N = clamp_log_ratio(sequence_sums(log_ratio_N, tokens.sequence)).exp() * exists_N
    k3_N = ratio_N - 1 - log_ratio_N
    values = {
        "loss": loss.detach(),
        "tokens": gap_N.new_tensor(gap_N.numel()),
        "sequences": sequences,
        "ratio": ratio_N.sum(),
        "ratio_squared": ratio_N.square().sum(),
        "weight": weight_N.sum(),
        "weight_squared": weight_N.square().sum(),
        "clip_high": (made.high & seen.keep).sum(),
        "clip_low": (made.low & seen.keep).sum(),
        "clip_dual": (made.dual & seen.keep).sum(),
        "kl_k1": -log_ratio_N.sum(),
        "kl_k3": k3_N.sum(),
        **{f"masked_{name}": (~mask).sum() for name, mask in seen.masks.items()},
    }
    if tokens.on_policy is not None:
        values |= {"own_tokens": tokens.on_policy.sum(), "own_k3": (k3_N * tokens.on_policy).sum()}
    if seen.entropy is not None:
        values["entropy"] = seen.entropy.sum(dtype=torch.float64)
    if seen.kl is not None:
        values["kl_reference"] = seen.kl.sum(dtype=torch.float64)
    largest = gap_N.abs().max() if gap_N.numel() else gap_N.sum()
    return MetricSums(_stacked(values, SUM_NAMES, gap_N.device), largest.double()[None])


def sum_likelihood_metrics(loss: Tensor, logprobs_N: Tensor) -> MetricSums:
    """Return the sums of supervised fine-tuning: loss and tokens."""
    values = {"loss": loss.detach(), "tokens": loss.new_tensor(logprobs_N.numel())}
    return MetricSums(_stacked(values, SUM_NAMES, loss.device), empty_sums(loss.device).largest)


def _stacked(values: Mapping[str, Tensor], names: Iterable[str], device: torch.device) -> Tensor:
    absent = torch.zeros((), dtype=torch.float64, device=device)
    return torch.stack([values.get(name, absent).double() for name in names])


def summarise_metrics(found: MetricSums, objective: Objective) -> dict[str, float]:
    """Return metrics of the whole batch: ``loss``; ``clip_high``, ``clip_low``, ``clip_dual``, shares of clipped
    tokens;
    ``kl_k1`` and ``kl_k3``, estimates of KL(μ‖π) (Schulman, "Approximating KL divergence"); ``ess`` and
    ``ess_sequence``, effective sample sizes (Σw)² ÷ (n·Σw²) of tokens and of sequences; ``entropy``; ``mismatch_max``;
    and, if enabled, ``kl_reference`` and, for each correction, the share of tokens that it masks."""
    total = dict(zip(SUM_NAMES, floats(found.totals), strict=True))
    tokens = max(total["tokens"], 1.0)
    corrections = objective.corrections
    absent = {
        *(["masked_band"] if corrections.band is None else []),
        *(["masked_opsm"] if corrections.opsm is None else []),
        *(["masked_m2po"] if corrections.m2po is None else []),
        *([] if objective.kl.coefficient else ["kl_reference"]),
    }
    return {
        "loss": total["loss"],
        **{name: total[name] / tokens for name in TOKEN_MEANS if name not in absent},
        "ess": _effective(total["ratio"], total["ratio_squared"], total["tokens"]),
        "ess_sequence": _effective(total["weight"], total["weight_squared"], total["sequences"]),
        **dict(zip(MAXIMUM_NAMES, floats(found.largest), strict=True)),
    }


def logprob_parity_metrics(first: MetricSums) -> dict[str, float]:
    """Return how far serving and training differ on the same tokens, from a step's ``first`` update.

    ``parity_k3`` is the mean of k3 = r − 1 − log r, r = π ÷ μ, over the ``parity_tokens`` tokens that the step's own
    weights sampled; with the same arithmetic it is 0.  Without such tokens only their number is returned.
    """
    total = dict(zip(SUM_NAMES, floats(first.totals), strict=True))
    count = total["own_tokens"]
    return {"parity_tokens": count} | ({"parity_k3": total["own_k3"] / count} if count else {})


def _effective(total: float, squared: float, count: float) -> float:
    return total**2 / (count * squared) if squared else 0.0
