"""Samples and micro-batches: the values that packing, context parallelism and the trainer hand on.  Numpy only."""

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
    """One token sequence and what is known of its tokens with loss."""

    token_ids: npt.NDArray[np.int32]
    """[T]"""
    targets: Int64Array
    """[N] positions of the tokens with loss, ascending, all ≥ 1."""
    columns: TokenColumns[TokenArray]
    """What the loss is told of each of them."""
    trajectory_index: int = 0
    """Index in the batch of the trajectory that it is from."""
    trajectory_positions: Int64Array | None = None
    """[N] where they stand among all tokens of that trajectory, its segments one after the other."""

    def with_columns(self, **more: TokenArray) -> TrainingSample:
        """With these columns too."""
        return replace(self, columns=replace(self.columns, **more))


SampleCost = Callable[[TrainingSample], float]
"""What training a sample takes, in any unit."""


class BadSampleError(UserError):
    """A sequence that this model, or these settings, cannot train."""


class AttentionBucket(NamedTuple):
    """Neighbouring sequences of similar length, for one padded attention call."""

    start: int
    """First token in the micro-batch."""
    lengths: tuple[int, ...]


class ContextChunks(NamedTuple):
    """This rank's early, or late, chunk of each sequence; empty ones are left out."""

    start: int
    """First of the rank's rows."""
    queries: tuple[int, ...]
    """Length of each chunk, one after the other from ``start``."""
    keys: tuple[int, ...]
    """Tokens that the chunk's last query sees."""
    key_rows: Int64Array
    """[sum of keys] Their rows in the whole micro-batch."""


@dataclass(frozen=True, slots=True, eq=False)
class ContextShard:
    """Where a rank's part belongs in the whole micro-batch of ``T`` tokens, ``N`` of them with loss."""

    width: int
    """Rows of each rank, the tail that makes them equal included."""
    places: Int64Array
    """[T] of each token among the cp · width rows of all ranks."""
    chunk_pairs: tuple[ContextChunks, ContextChunks]
    target_width: int
    """Most tokens with loss of any rank."""
    target_places: Int64Array
    """[N] of each token with loss among the cp · target_width."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """Sequences one after the other.  ``T`` tokens, ``N`` of them with loss."""

    token_ids: Int64Array
    """[T]"""
    positions: Int64Array
    """[T] within the token's own sequence."""
    rows: Int64Array
    """[N] the row whose logits predict each token with loss; all different."""
    labels: Int64Array
    """[N] those tokens."""
    columns: TokenColumns[TokenArray]
    """[N] of each."""
    buckets: tuple[AttentionBucket, ...] = field(default=())
    context_shard: ContextShard | None = None
    """Under context parallelism: tokens, positions, rows and labels are one rank's; see
    :mod:`learner.data.context_parallel`."""
