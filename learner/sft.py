"""Supervised fine-tuning: one optimizer step on the tokens with loss of a batch.  The caller holds curriculum and
schedule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from learner.batch import supervised
from learner.losses import LossResult, likelihood_loss
from learner.messages import SftBatch, SftReport

if TYPE_CHECKING:  # these load megatron
    from torch import Tensor

    from learner.attention import PackedBatch
    from learner.step import Trainer


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
