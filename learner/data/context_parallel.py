"""Context parallelism: the split of a micro-batch over ranks.  Numpy only.

Each sequence is cut into 2·cp chunks of nearly equal length and a rank holds an early and the matching late one (chunks
i and 2·cp − 1 − i), so that all have the same share of the causal attention.  Which pair a rank holds moves on by one
with each sequence: lengths that 2·cp does not divide even out.  A chunk's queries see the keys of its sequence from the
first token to the chunk's last, for which the ranks exchange keys and values
(:mod:`learner.parallel.context_exchange`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from learner.data.micro_batches import ContextChunks, ContextShard, Int64Array, MicroBatch


def _chunks(lengths: Sequence[int], cp: int, rank: int, half: int) -> list[tuple[int, int, int]]:
    """Return (first row of the sequence, begin, end within it) of a rank's non-empty chunks, in order."""
    found: list[tuple[int, int, int]] = []
    start = 0
    for index, length in enumerate(lengths):
        pair = (rank + index) % cp
        chunk = 2 * cp - 1 - pair if half else pair
        begin, end = (length * at // (2 * cp) for at in (chunk, chunk + 1))
        if end > begin:
            found.append((start, begin, end))
        start += length
    return found


def _rows(spans: Sequence[tuple[int, int]]) -> Int64Array:
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(begin, end) for begin, end in spans)])


def split_micro_batch(batch: MicroBatch, cp: int, rank: int, multiple: int = 1) -> MicroBatch:
    """Return the part of ``batch`` (packed without a tail) that ``rank`` of ``cp`` holds; its ``columns`` stay those of
    all tokens with loss.  A tail makes row counts a multiple of ``multiple`` and equal over ranks."""
    lengths = [length for bucket in batch.buckets for length in bucket.lengths]
    chunks = [[_chunks(lengths, cp, each, half) for half in (0, 1)] for each in range(cp)]
    held = [_rows([(s + b, s + e) for half in of_rank for s, b, e in half]) for of_rank in chunks]
    width = -(-max(len(rows) for rows in held) // multiple) * multiple
    row_indices = np.zeros(len(batch.token_ids), np.int64)
    for each, rows in enumerate(held):
        row_indices[rows] = each * width + np.arange(len(rows))

    owner, row = np.divmod(row_indices[batch.rows], width)
    counts = np.bincount(owner, minlength=cp)
    target_width = max(1, int(counts.max()))
    target_row_indices = np.zeros(len(owner), np.int64)
    for each in range(cp):
        target_row_indices[owner == each] = each * target_width + np.arange(counts[each])

    tail = width - len(held[rank])
    early, late = chunks[rank]
    return replace(
        batch,
        token_ids=np.concatenate([batch.token_ids[held[rank]], np.zeros(tail, np.int64)]),
        positions=np.concatenate([batch.positions[held[rank]], np.arange(tail)]),
        rows=row[owner == rank],
        labels=batch.labels[owner == rank],
        context_shard=ContextShard(
            width=width,
            row_indices=row_indices,
            chunk_pairs=(_half(early, 0), _half(late, sum(end - begin for _, begin, end in early))),
            target_width=target_width,
            target_row_indices=target_row_indices,
        ),
    )


def _half(chunks: Sequence[tuple[int, int, int]], start: int) -> ContextChunks:
    return ContextChunks(
        start=start,
        queries=tuple(end - begin for _, begin, end in chunks),
        keys=tuple(end for _, _, end in chunks),
        key_rows=_rows([(first, first + end) for first, _, end in chunks]),
    )
