"""Supervised fine-tuning: one optimizer step on the tokens with loss of a batch.  The caller holds curriculum and
schedule."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learner.batch import supervised
from learner.losses import LossResult, likelihood_loss
from protocol.trajectory import Int32Array, Uint8Array

if TYPE_CHECKING:  # loads megatron
    from torch import Tensor

    from learner.attention import PackedBatch
    from learner.step import Trainer


@dataclass(frozen=True, slots=True, eq=False)
class SftBatch:
    sequences: list[tuple[Int32Array, Uint8Array]]
    """(token ids [T], loss mask [T]) each; the loss is averaged over all tokens with mask 1 but a sequence's first."""
    lr: float


@dataclass(frozen=True, slots=True)
class SftReport:
    loss: float
    grad_norm: float
    tokens: int
    """Of the sequences, prompts included."""
    trained_tokens: int
    seconds: float


def sft_step(trainer: Trainer, batch: SftBatch) -> SftReport:
    """Raises ValueError for a batch in which no token has loss."""
    began = time.perf_counter()
    samples = supervised(batch.sequences)
    trained = sum(len(sample.targets) for sample in samples)
    if not trained:
        raise ValueError("no token of this batch has loss")

    def loss(logprobs: Tensor, _entropy: Tensor, _batch: PackedBatch) -> LossResult:
        return likelihood_loss(logprobs, denominator=trained)

    result = trainer.step(samples, loss, batch.lr, entropy=False)
    tokens = sum(len(sample.token_ids) for sample in samples)
    return SftReport(float(result.sums[0]), result.grad_norm, tokens, trained, time.perf_counter() - began)
