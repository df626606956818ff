"""Training on a batch: forward-only passes, split into minibatches, updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from learner.data.micro_batches import SampleCost, TrainingSample
from learner.data.packing import balance_samples
from learner.losses.corrections import second_moment_mask
from learner.losses.metrics import MetricSums, logprob_parity_metrics, summarise_metrics
from learner.losses.policy_loss import LossResult, policy_loss
from learner.losses.settings import ProximalPolicy
from learner.models.reference import ReferencePolicy

if TYPE_CHECKING:  # these load megatron
    from torch import Tensor

    from learner.losses.token_columns import TokenColumns
    from learner.training.trainer import MegatronTrainer, TokenResults


@dataclass(frozen=True, slots=True)
class BatchUpdateResult:
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Metrics of the updates that were made; ``grad_norm`` is the largest, ``nonfinite_updates`` counts the others."""
    nonfinite_indices: frozenset[int] = frozenset()
    """Indices of trajectories without any sample in an update that was made."""
    token_results: Sequence[tuple[TrainingSample, TokenResults]] = ()
    """Token values of each sample in the updates that were made."""


def update_policy(
    trainer: MegatronTrainer, reference: ReferencePolicy | None, samples: Sequence[TrainingSample], lr: float
) -> BatchUpdateResult:
    """Train on a batch in ``minibatches`` updates; one with a non-finite loss or gradient is skipped."""
    objective = trainer.spec.objective

    def loss(logprobs: Tensor, entropy: Tensor, tokens: TokenColumns[Tensor]) -> LossResult:
        return policy_loss(logprobs, tokens, objective, entropy)

    samples = _with_pass_columns(trainer, reference, samples)
    parts = split_minibatches(samples, objective.policy_loss.minibatches, trainer.cost)
    results = [trainer.step(part, loss, lr, entropy=True, return_tokens=True) for part in parts]

    made = [result for result in results if result.updated]
    metrics = {"nonfinite_updates": float(len(results) - len(made))}
    if made:
        metrics |= summarise_metrics(reduce(MetricSums.add, (result.sums for result in made)), objective)
        metrics |= {"loss": metrics["loss"] / len(parts), "grad_norm": max(result.grad_norm for result in made)}
        metrics |= logprob_parity_metrics(results[0].sums) if results[0].updated else {}
    trained = {
        each.trajectory_index for part, result in zip(parts, results, strict=True) if result.updated for each in part
    }
    seen = [
        each
        for part, result in zip(parts, results, strict=True)
        if result.updated
        for each in zip(part, result.token_results, strict=True)
    ]
    return BatchUpdateResult(metrics, frozenset({sample.trajectory_index for sample in samples} - trained), seen)


def _with_pass_columns(
    trainer: MegatronTrainer, reference: ReferencePolicy | None, samples: Sequence[TrainingSample]
) -> Sequence[TrainingSample]:
    """Add the columns computed by forward passes over the batch, with the weights before its first update and the
    reference's."""
    corrections = trainer.spec.objective.corrections
    if trainer.spec.objective.needs_logprob_pass:
        before = trainer.logprobs(samples)
        if corrections.m2po is not None:
            gaps = [own - sample.columns.behaviour for own, sample in zip(before, samples, strict=True)]
            keep = second_moment_mask(np.concatenate(gaps), corrections.m2po)
            keeps = np.split(keep, np.cumsum([len(gap) for gap in gaps])[:-1])
            samples = [sample.with_columns(keep=own) for sample, own in zip(samples, keeps, strict=True)]
        if corrections.proximal is ProximalPolicy.RECOMPUTED:
            samples = [sample.with_columns(proximal=own) for sample, own in zip(samples, before, strict=True)]
    if reference is not None:
        with reference.activated():
            frozen = trainer.logprobs(samples)
        samples = [sample.with_columns(reference=own) for sample, own in zip(samples, frozen, strict=True)]
    return samples


def split_minibatches(samples: Sequence[TrainingSample], count: int, cost: SampleCost) -> list[list[TrainingSample]]:
    """Distribute samples over ``count`` updates by their ``cost``, or fewer for fewer samples.  A token's weight is
    multiplied by the number of updates, so that each update is as large as one over the whole batch."""
    count = min(count, len(samples))
    if count == 1:
        return [list(samples)]
    scale = np.float32(count)
    return [
        [sample.with_columns(weights=sample.columns.weights * scale) for sample in part]
        for part in balance_samples(samples, count, cost)
    ]
