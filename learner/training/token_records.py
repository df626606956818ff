"""Token values of a step for the trained log.  Numpy only.

Values of a trajectory's samples (a linear episode has one, branches have more) are assigned to the positions of their
tokens in its segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from learner.data.micro_batches import TrainingSample
from protocol.run_directory.trained_log import PackedTrainedTokens, TrainedTokens, pack_trained_tokens

if TYPE_CHECKING:  # it loads megatron
    from learner.training.trainer import TokenResults


def pack_token_records(
    names: Sequence[str], lengths: Sequence[int], seen: Sequence[tuple[TrainingSample, TokenResults]]
) -> Mapping[str, PackedTrainedTokens]:
    """Return packed values of each trajectory with a token in ``seen``; ``names`` and ``lengths`` are by trajectory
    index."""
    parts: dict[int, list[tuple[TrainingSample, TokenResults]]] = {}
    for sample, found in seen:
        if len(sample.targets):  # a placeholder has none
            parts.setdefault(sample.trajectory_index, []).append((sample, found))
    return {names[origin]: _record(lengths[origin], own) for origin, own in parts.items()}


def _record(length: int, parts: Sequence[tuple[TrainingSample, TokenResults]]) -> PackedTrainedTokens:
    logprobs, advantages = (np.full(length, np.nan, np.float32) for _ in range(2))
    flags = np.zeros(length, np.uint8)
    for sample, found in parts:
        assert sample.trajectory_positions is not None  # noqa: S101  # samples of trajectories have them
        logprobs[sample.trajectory_positions] = found.logprobs
        advantages[sample.trajectory_positions] = sample.columns.advantages
        flags[sample.trajectory_positions] = found.loss_flags
    gaps = np.concatenate([np.abs(found.logprobs - sample.columns.behaviour) for sample, found in parts])
    return PackedTrainedTokens(
        pack_trained_tokens(TrainedTokens(logprobs, advantages, flags)),
        float(np.nanmean(advantages)),
        float(gaps.mean()),
    )
