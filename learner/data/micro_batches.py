"""Samples and micro-batches, the values shared by packing, context parallelism and the trainer.  Numpy only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from learner.losses.token_columns import TokenArray, TokenColumns
from protocol.errors import UserError

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSample:
    """One token sequence, with columns of values for its tokens with loss."""

    token_ids: npt.NDArray[np.int32]
    """int32 [T]"""
    targets: Int64Array
    """[N] positions of the tokens with loss, ascending, all ≥ 1."""
    columns: TokenColumns[TokenArray]
    """Values for the loss, [N] each."""
    trajectory_index: int = 0
    """Index of its trajectory in the batch."""
    trajectory_positions: Int64Array | None = None
    """[N] positions of the targets among all tokens of the trajectory, segments concatenated."""

    def with_columns(self, **more: TokenArray) -> TrainingSample:
        """Return the sample with additional columns."""
        return replace(self, columns=replace(self.columns, **more))


SampleCost = Callable[[TrainingSample], float]
"""Cost of training a sample, in any unit."""


class BadSampleError(UserError):
    """A sequence cannot be trained with this model or these settings."""


class AttentionBucket(NamedTuple):
    """Neighbouring sequences of similar length, for one padded attention call."""

    start: int
    """First token in the micro-batch."""
    lengths: tuple[int, ...]


class ContextChunks(NamedTuple):
    """This rank's early, or late, chunk of each sequence; empty ones are left out."""

    start: int
    """Index of the first of the rank's rows."""
    queries: tuple[int, ...]
    """Length of each chunk; chunks follow each other from ``start``."""
    keys: tuple[int, ...]
    """Number of keys that each chunk's last query sees."""
    key_rows: Int64Array
    """[sum of keys] rows of the keys in the whole micro-batch."""


@dataclass(frozen=True, slots=True, eq=False)
class ContextShard:
    """Position of a rank's part in the whole micro-batch of ``T`` tokens, ``N`` of them with loss."""

    width: int
    """Number of rows per rank, including the tail that makes them equal."""
    row_indices: Int64Array
    """[T] row of each token among the cp · width rows of all ranks."""
    chunk_pairs: tuple[ContextChunks, ContextChunks]
    target_width: int
    """Largest number of tokens with loss of a rank."""
    target_row_indices: Int64Array
    """[N] row of each token with loss among the cp · target_width rows of all ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """Concatenated sequences of ``T`` tokens, ``N`` of them with loss."""

    token_ids: Int64Array
    """[T]"""
    positions: Int64Array
    """[T] positions within the tokens' own sequences."""
    rows: Int64Array
    """[N] distinct rows whose logits predict the tokens with loss."""
    labels: Int64Array
    """[N] ids of the tokens with loss."""
    columns: TokenColumns[TokenArray]
    """Values for the loss, [N] each."""
    buckets: tuple[AttentionBucket, ...] = field(default=())
    context_shard: ContextShard | None = None
    """Set with context parallelism: tokens, positions, rows and labels are then one rank's part; see
    :mod:`learner.data.context_parallel`."""
