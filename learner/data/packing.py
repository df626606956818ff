"""Packs sequences into micro-batches without padding, balanced over ranks and micro-batches by cost.  Numpy only and
deterministic.

A token is trained by the logits of the position before it, so a micro-batch has, for each token with loss, the row that
predicts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.data.micro_batches import AttentionBucket, BadSampleError, MicroBatch, SampleCost, TrainingSample
from learner.losses.token_columns import concatenate_token_columns

_WASTE = 1.25
"""A padded attention call may cost at most this multiple of its sequences' own cost."""


def balance_samples(samples: Sequence[TrainingSample], ranks: int, cost: SampleCost) -> list[list[TrainingSample]]:
    """Distribute samples over ranks: the costliest first, each to the rank with the lowest cost so far.  An otherwise
    empty rank gets a sample without loss, because every rank takes part in the gradient's sum."""
    shares = _spread(samples, ranks, cost, max_tokens=None)
    if shares is None:
        raise AssertionError("without a bound every sample finds a place")
    return [share or [_without_loss(samples[0])] for share in shares]


def _without_loss(sample: TrainingSample) -> TrainingSample:
    return TrainingSample(sample.token_ids[:2], sample.targets[:0], sample.columns.map(lambda column: column[:0]))


def make_micro_batches(
    samples: Sequence[TrainingSample], max_tokens: int, cost: SampleCost, multiple: int = 1
) -> list[MicroBatch]:
    """Return balanced micro-batches of at most ``max_tokens``, as few as possible.

    Within one, longer sequences come first, so neighbours have similar lengths, which keeps padded attention cheap.  A
    tail sequence without loss makes token counts a multiple of ``multiple`` (for sequence parallelism).
    """
    count = -(-sum(len(sample.token_ids) for sample in samples) // max_tokens)
    while (bins := _spread(samples, count, cost, max_tokens)) is None:
        if count >= len(samples):
            raise BadSampleError(f"a sequence is longer than {max_tokens} tokens: raise learner.micro_batch_tokens")
        count += 1
    return [
        pack_micro_batch(sorted(each, key=lambda sample: -len(sample.token_ids)), multiple) for each in bins if each
    ]


def _spread(
    samples: Sequence[TrainingSample], count: int, cost: SampleCost, max_tokens: int | None
) -> list[list[TrainingSample]] | None:
    """Put samples into bins, the costliest first, each into the bin with room and the lowest cost so far; return None
    if no bin has room."""
    bins: list[list[TrainingSample]] = [[] for _ in range(count)]
    costs, tokens = np.zeros(count), np.zeros(count, np.int64)
    own = [cost(sample) for sample in samples]
    for index in sorted(range(len(samples)), key=lambda i: (-own[i], i)):
        length = len(samples[index].token_ids)
        open_costs = costs if max_tokens is None else np.where(tokens + length <= max_tokens, costs, np.inf)
        least = int(open_costs.argmin())
        if open_costs[least] == np.inf:
            return None
        bins[least].append(samples[index])
        costs[least] += own[index]
        tokens[least] += length
    return bins


def pack_micro_batch(samples: Sequence[TrainingSample], multiple: int = 1) -> MicroBatch:
    """Return one micro-batch of the samples in this order."""
    lengths = [len(sample.token_ids) for sample in samples]
    tail = -sum(lengths) % multiple
    all_lengths = [*lengths, tail] if tail else lengths
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if lengths else np.zeros(0)
    return MicroBatch(
        token_ids=np.concatenate([*(s.token_ids for s in samples), np.zeros(tail, np.int32)]).astype(np.int64),
        positions=np.concatenate([np.arange(length) for length in all_lengths]),
        rows=np.concatenate([s.targets + (int(at) - 1) for s, at in zip(samples, starts, strict=True)]),
        labels=np.concatenate([s.token_ids[s.targets] for s in samples]).astype(np.int64),
        columns=concatenate_token_columns([s.columns for s in samples]),
        buckets=make_attention_buckets(all_lengths),
    )


def make_attention_buckets(lengths: Sequence[int]) -> tuple[AttentionBucket, ...]:
    """Divide neighbouring sequences into buckets so that padding to a bucket's longest never costs too much; the cost
    of attention is the square of the length."""
    found: list[AttentionBucket] = []
    start, first, longest, own = 0, 0, 0, 0
    for index, length in enumerate(lengths):
        widest, cost = max(longest, length), own + length * length
        if index > first and (index + 1 - first) * widest * widest > _WASTE * cost + 4096:
            found.append(AttentionBucket(start, tuple(lengths[first:index])))
            start += sum(lengths[first:index])
            first, widest, cost = index, length, length * length
        longest, own = widest, cost
    if first < len(lengths):
        found.append(AttentionBucket(start, tuple(lengths[first:])))
    return tuple(found)
