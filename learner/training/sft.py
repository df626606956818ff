"""Supervised fine-tuning: one optimizer step on a batch, and the likelihood of held-out sequences.  Curriculum and
schedule are up to the caller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from learner.data.batch import make_supervised_samples
from learner.losses.policy_loss import LossResult, likelihood_loss
from learner.messages import SftBatch, SftReport
from protocol.trajectory import Int32Array, Uint8Array

if TYPE_CHECKING:  # these load megatron
    from torch import Tensor

    from learner.losses.token_columns import TokenColumns
    from learner.training.trainer import MegatronTrainer


def train_sft_step(trainer: MegatronTrainer, batch: SftBatch) -> SftReport:
    """Take one step.  Raises ValueError for a batch without a token with loss, and FloatingPointError if its gradient
    is not finite; the weights are then unchanged."""
    began = time.perf_counter()
    samples = make_supervised_samples(batch.sequences, batch.weights)
    if not samples:
        raise ValueError("no token of this batch has loss")

    def loss(logprobs: Tensor, _entropy: Tensor, tokens: TokenColumns[Tensor]) -> LossResult:
        return likelihood_loss(logprobs, tokens)

    result = trainer.step(samples, loss, batch.lr, entropy=False)
    if not result.updated:
        raise FloatingPointError(f"gradient norm is {result.grad_norm}: lower the learning rate")
    tokens = sum(len(sample.token_ids) for sample in samples)
    trained = sum(len(sample.targets) for sample in samples)
    return SftReport(float(result.sums.totals[0]), result.grad_norm, tokens, trained, time.perf_counter() - began)


def log_likelihoods(trainer: MegatronTrainer, sequences: Sequence[tuple[Int32Array, Uint8Array]]) -> list[float]:
    """Return Σ log π over the tokens with loss of each sequence with the current weights; each sequence must have
    some."""
    return [float(found.sum(dtype=np.float64)) for found in trainer.logprobs(make_supervised_samples(sequences))]
