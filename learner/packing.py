"""Sequences into micro-batches without padding, balanced over ranks.  Numpy only; order and result depend on the
input alone.

A token is trained by the logits of the position before it, so a micro-batch names, for each token with loss, the row
that predicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from learner.tokens import Array, TokenColumns, concatenate

Int64Array = npt.NDArray[np.int64]

ATTENTION_TOKENS = 2048.0
"""At this length attention is taken to cost as much as the rest of a layer: a cost of T·(1 + T ÷ this)."""
_WASTE = 1.25
"""A padded attention call may cost at most this multiple of its sequences' own cost."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One token sequence and what is known of its tokens with loss."""

    token_ids: npt.NDArray[np.int32]
    """[T]"""
    targets: Int64Array
    """[N] positions of the tokens with loss, ascending, all ≥ 1."""
    columns: TokenColumns[Array]
    """What the loss is told of each of them."""
    origin: int = 0
    """Index in the batch of the trajectory that it is from."""

    def told(self, **more: Array) -> Sample:
        """With these columns too."""
        return replace(self, columns=replace(self.columns, **more))

    @property
    def cost(self) -> float:
        return len(self.token_ids) * (1.0 + len(self.token_ids) / ATTENTION_TOKENS)


class Bucket(NamedTuple):
    """Neighbouring sequences of similar length, for one padded attention call."""

    start: int
    """First token in the micro-batch."""
    lengths: tuple[int, ...]


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
    columns: TokenColumns[Array]
    """[N] of each."""
    buckets: tuple[Bucket, ...] = field(default=())


def balance(samples: Sequence[Sample], ranks: int) -> list[list[Sample]]:
    """Share samples over ranks: the costliest first, each to the rank with the least so far.  A rank that would stay
    empty gets a sample without loss, since every rank takes part in the gradient's sum."""
    shares: list[list[Sample]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for index in sorted(range(len(samples)), key=lambda i: (-samples[i].cost, i)):
        least = loads.index(min(loads))
        shares[least].append(samples[index])
        loads[least] += samples[index].cost
    return [share or [_without_loss(samples[0])] for share in shares]


def _without_loss(sample: Sample) -> Sample:
    return Sample(sample.token_ids[:2], sample.targets[:0], sample.columns.map(lambda column: column[:0]))


def micro_batches(samples: Sequence[Sample], max_tokens: int, multiple: int = 1) -> list[MicroBatch]:
    """Longest first, filled in order: neighbours have similar lengths, which keeps padded attention cheap.  Token
    counts are made a multiple of ``multiple`` by a tail sequence without loss (sequence parallelism needs it)."""
    ordered = sorted(samples, key=lambda sample: -len(sample.token_ids))
    bins: list[list[Sample]] = []
    room = 0
    for sample in ordered:
        if len(sample.token_ids) > room:
            bins.append([])
            room = max_tokens
        bins[-1].append(sample)
        room -= len(sample.token_ids)
    return [pack(group, multiple) for group in bins]


def pack(samples: Sequence[Sample], multiple: int = 1) -> MicroBatch:
    """One micro-batch of these samples in this order."""
    lengths = [len(sample.token_ids) for sample in samples]
    tail = -sum(lengths) % multiple
    all_lengths = [*lengths, tail] if tail else lengths
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if lengths else np.zeros(0)
    return MicroBatch(
        token_ids=np.concatenate([*(s.token_ids for s in samples), np.zeros(tail, np.int32)]).astype(np.int64),
        positions=np.concatenate([np.arange(length) for length in all_lengths]),
        rows=np.concatenate([s.targets + (int(at) - 1) for s, at in zip(samples, starts, strict=True)]),
        labels=np.concatenate([s.token_ids[s.targets] for s in samples]).astype(np.int64),
        columns=concatenate([s.columns for s in samples]),
        buckets=buckets(all_lengths),
    )


def buckets(lengths: Sequence[int]) -> tuple[Bucket, ...]:
    """Cut a run of sequences where padding them to the longest of the bucket would cost too much.  Attention's cost is
    the square of the length."""
    found: list[Bucket] = []
    start, first, longest, own = 0, 0, 0, 0
    for index, length in enumerate(lengths):
        widest, cost = max(longest, length), own + length * length
        if index > first and (index + 1 - first) * widest * widest > _WASTE * cost + 4096:
            found.append(Bucket(start, tuple(lengths[first:index])))
            start += sum(lengths[first:index])
            first, widest, cost = index, length, length * length
        longest, own = widest, cost
    if first < len(lengths):
        found.append(Bucket(start, tuple(lengths[first:])))
    return tuple(found)
