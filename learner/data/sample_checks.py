"""Checks of samples before they reach the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.data.micro_batches import BadSampleError, TrainingSample


def check_samples(samples: Sequence[TrainingSample], *, vocabulary: int, most_tokens: int) -> None:
    """Raise BadSampleError for token ids outside the vocabulary, a sequence of more than ``most_tokens``, wrong types,
    and columns of another length than the tokens with loss."""
    for index, sample in enumerate(samples):
        tokens, targets = sample.token_ids, sample.targets
        if tokens.dtype.kind != "i" or tokens.ndim != 1 or targets.dtype.kind != "i" or targets.ndim != 1:
            raise BadSampleError(
                f"sequence {index} has token ids {tokens.dtype}{list(tokens.shape)} and targets "
                f"{targets.dtype}{list(targets.shape)}: both are vectors of integers"
            )
        if len(tokens) > most_tokens:
            raise BadSampleError(
                f"sequence {index} of {len(tokens)} tokens is longer than learner.micro_batch_tokens × learner.cp = "
                f"{most_tokens}: raise learner.micro_batch_tokens, or learner.cp, until their product holds it"
            )
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
            wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0]
            raise BadSampleError(
                f"sequence {index} has token {wrong}, and the model's vocabulary has {vocabulary}: the trajectories "
                "are of another model or tokenizer: look at model.path and what the engines serve"
            )
        if len(targets) and not 1 <= int(targets.min()) <= int(targets.max()) < len(tokens):
            raise BadSampleError(
                f"sequence {index} of {len(tokens)} tokens has targets from {targets.min()} to {targets.max()}: each "
                "is the position of a token that has a predecessor"
            )
        if len(targets) != len(sample.columns.behaviour) or np.any(np.diff(targets) <= 0):
            raise BadSampleError(
                f"sequence {index} has {len(targets)} targets and columns of {len(sample.columns.behaviour)} values: "
                "each target is named once, in order, with a value in each column"
            )
