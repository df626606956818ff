"""Context-parallel ranks hold every token once, and each query finds the keys before it, whatever the lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.data.context_parallel import split_micro_batch
from learner.data.micro_batches import TrainingSample
from learner.data.packing import pack_micro_batch
from learner.losses.token_columns import make_token_columns

LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=8)


def sample(start, length, targets_from):
    targets = np.arange(max(1, int(length * targets_from)), length)
    tokens = np.arange(start, start + length, dtype=np.int32)
    return TrainingSample(tokens, targets, make_token_columns(tokens[targets], np.zeros(len(targets)), 1.0))


def whole(lengths, targets_from=0.5):
    """Tokens numbered through."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return pack_micro_batch(
        [sample(int(start), length, targets_from) for start, length in zip(starts, lengths, strict=True)]
    )


def gathered(parts, width):
    """Return the result of an all-gather of the ranks' rows, each padded to ``width``."""
    return np.concatenate([np.concatenate([part, np.full(width - len(part), -1)]) for part in parts])


@given(LENGTHS, st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]))
def test_all_ranks_together_hold_the_micro_batch(lengths, cp, multiple):
    batch = whole(lengths)
    parts = [split_micro_batch(batch, cp, rank, multiple) for rank in range(cp)]
    share = parts[0].context_shard
    assert {len(part.token_ids) for part in parts} == {share.width}
    assert share.width % multiple == 0
    for name in ("token_ids", "positions"):
        rows = gathered([getattr(part, name) for part in parts], share.width)
        assert (rows[share.row_indices] == getattr(batch, name)).all()
    labels = gathered([part.labels for part in parts], share.target_width)
    assert (labels[share.target_row_indices] == batch.labels).all()
    for part in parts:
        assert (part.token_ids[part.rows] + 1 == part.labels).all(), "the row before it predicts a token"
        assert part.columns is batch.columns


@given(LENGTHS, st.sampled_from([2, 3, 4]))
def test_every_query_sees_its_sequence_up_to_itself(lengths, cp):
    """The last query of a chunk is the last of its keys; tokens are numbered through, so rows can be read off."""
    batch = whole(lengths)
    starts = np.repeat(np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    for rank in range(cp):
        part = split_micro_batch(batch, cp, rank)
        for half in part.context_shard.chunk_pairs:
            at, key = half.start, 0
            for queries, keys in zip(half.queries, half.keys, strict=True):
                rows = half.key_rows[key : key + keys]
                own = part.token_ids[at : at + queries]
                assert rows.tolist() == list(range(starts[own[0]], own[-1] + 1))
                assert rows[-queries:].tolist() == own.tolist()
                at, key = at + queries, key + keys


@given(LENGTHS, st.sampled_from([2, 4]))
def test_padding_is_small(lengths, cp):
    """Not up to a multiple of 2·cp for every sequence."""
    width = split_micro_batch(whole(lengths), cp, 0).context_shard.width
    assert width <= sum(lengths) / cp + 2 * len(lengths) / cp + 2


@pytest.mark.parametrize("cp", [2, 4])
def test_ranks_have_the_same_attention(cp):
    """Without the pairing of early and late chunks the last rank would have most of it."""
    work = []
    for rank in range(cp):
        halves = split_micro_batch(whole([4096, 1000, 3001]), cp, rank).context_shard.chunk_pairs
        work.append(sum(q * (k - q / 2) for half in halves for q, k in zip(half.queries, half.keys, strict=True)))
    assert max(work) / min(work) < 1.01


def test_a_micro_batch_without_loss_tokens_has_no_labels():
    """The filler of a rank without a share."""
    part = split_micro_batch(whole([2], targets_from=1.0), 4, 1)
    assert len(part.labels) == 0
    assert part.context_shard.target_width == 1
