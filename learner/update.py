"""What a batch does to the weights, on one screen: look, share out, update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from learner.corrections import second_moment_mask
from learner.losses import LossResult, policy_loss
from learner.metrics import Sums, parity, summarise
from learner.objective import Proximal
from learner.packing import Cost, Sample, balance
from learner.reference import Reference

if TYPE_CHECKING:  # these load megatron
    from torch import Tensor

    from learner.step import Seen, Trainer
    from learner.tokens import TokenColumns


@dataclass(frozen=True, slots=True)
class Updates:
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Of the updates that were made; ``grad_norm`` is the largest, ``nonfinite_updates`` counts the others."""
    lost: frozenset[int] = frozenset()
    """Origins of samples none of which was in an update that was made."""
    seen: Sequence[tuple[Sample, Seen]] = ()
    """What updates that were made found of the tokens of each sample."""


def update(trainer: Trainer, reference: Reference | None, samples: Sequence[Sample], lr: float) -> Updates:
    """Train on a batch, in ``minibatches`` updates.  One whose loss or gradient is not finite is not made."""
    objective = trainer.settings.objective

    def loss(logprobs: Tensor, entropy: Tensor, tokens: TokenColumns[Tensor]) -> LossResult:
        return policy_loss(logprobs, tokens, objective, entropy)

    samples = _looked_up(trainer, reference, samples)
    parts = minibatches(samples, objective.minibatches, trainer.cost)
    results = [trainer.step(part, loss, lr, entropy=True, look=True) for part in parts]

    made = [result for result in results if result.updated]
    metrics = {"nonfinite_updates": float(len(results) - len(made))}
    if made:
        metrics |= summarise(reduce(Sums.plus, (result.sums for result in made)), objective)
        metrics |= {"loss": metrics["loss"] / len(parts), "grad_norm": max(result.grad_norm for result in made)}
        metrics |= parity(results[0].sums) if results[0].updated else {}
    trained = {each.origin for part, result in zip(parts, results, strict=True) if result.updated for each in part}
    seen = [
        each
        for part, result in zip(parts, results, strict=True)
        if result.updated
        for each in zip(part, result.seen, strict=True)
    ]
    return Updates(metrics, frozenset({sample.origin for sample in samples} - trained), seen)


def _looked_up(trainer: Trainer, reference: Reference | None, samples: Sequence[Sample]) -> Sequence[Sample]:
    """With the columns that passes over the batch give, by the weights before its first update and the reference's."""
    asked = trainer.settings.objective.corrections
    if trainer.settings.objective.needs_pass:
        before = trainer.logprobs(samples)
        if asked.m2po is not None:
            gaps = [own - sample.columns.behaviour for own, sample in zip(before, samples, strict=True)]
            keep = second_moment_mask(np.concatenate(gaps), asked.m2po)
            keeps = np.split(keep, np.cumsum([len(gap) for gap in gaps])[:-1])
            samples = [sample.told(keep=own) for sample, own in zip(samples, keeps, strict=True)]
        if asked.proximal is Proximal.RECOMPUTED:
            samples = [sample.told(proximal=own) for sample, own in zip(samples, before, strict=True)]
    if reference is not None:
        with reference.in_place():
            frozen = trainer.logprobs(samples)
        samples = [sample.told(reference=own) for sample, own in zip(samples, frozen, strict=True)]
    return samples


def minibatches(samples: Sequence[Sample], count: int, cost: Cost) -> list[list[Sample]]:
    """Share samples over ``count`` updates by their ``cost``, fewer where there are fewer samples.  A token's weight is
    multiplied by the number of updates: it is the same in whichever of them it comes, and an update is as large as one
    over the whole batch."""
    count = min(count, len(samples))
    if count == 1:
        return [list(samples)]
    scale = np.float32(count)
    return [
        [sample.told(weights=sample.columns.weights * scale) for sample in part]
        for part in balance(samples, count, cost)
    ]
