"""Every token of every sequence is trained once, by the row that predicts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.packing import Bucket, Sample, balance, buckets, micro_batches, pack
from learner.tokens import columns

LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=30)


def sample(length: int, first: int = 0) -> Sample:
    """Token ids that name their place: first, first + 1, ..."""
    targets = np.arange(max(1, length // 2), length)
    told = columns(-targets, np.full(len(targets), first), 0.5)
    return Sample(np.arange(first, first + length, dtype=np.int32), targets, told)


def samples(lengths) -> list[Sample]:
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return [sample(length, int(start)) for length, start in zip(lengths, starts, strict=True)]


def test_rows_predict_their_labels():
    batch = pack([sample(4, 10), sample(3, 20)])
    assert batch.token_ids.tolist() == [10, 11, 12, 13, 20, 21, 22]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.rows.tolist() == [1, 2, 4, 5]
    assert batch.labels.tolist() == [12, 13, 21, 22]
    assert batch.columns.behaviour.tolist() == [-2, -3, -1, -2]
    assert batch.columns.advantages.tolist() == [10, 10, 20, 20]
    assert batch.columns.sequence.tolist() == [0, 0, 1, 1]


@given(LENGTHS, st.integers(1, 100), st.sampled_from([1, 2, 4]))
def test_every_token_with_loss_is_in_exactly_one_batch(lengths, max_tokens, multiple):
    made = micro_batches(samples(lengths), max_tokens, multiple)
    expected = sorted(int(token) for s in samples(lengths) for token in s.token_ids[s.targets])
    assert sorted(int(label) for batch in made for label in batch.labels) == expected
    for batch in made:
        assert (batch.token_ids[batch.rows] + 1 == batch.labels).all()
        assert len(set(batch.rows.tolist())) == len(batch.rows)
        assert len(batch.token_ids) % multiple == 0
        assert sum(sum(bucket.lengths) for bucket in batch.buckets) == len(batch.token_ids)
        real = sum(batch.positions == 0) - bool(len(batch.token_ids) > max_tokens)
        assert len(batch.token_ids) - multiple < max_tokens or real <= 2


@given(LENGTHS)
def test_buckets_cover_the_sequences_in_order(lengths):
    lengths = sorted(lengths, reverse=True)
    made = buckets(lengths)
    assert [length for bucket in made for length in bucket.lengths] == lengths
    assert [bucket.start for bucket in made] == [0, *np.cumsum([sum(b.lengths) for b in made])[:-1]]


def test_a_long_sequence_does_not_pad_the_short_ones():
    """One padded call for a length of 4000 and thirty of 50 would cost eighty times the work."""
    assert buckets([4000] + [50] * 30) == (Bucket(0, (4000,)), Bucket(4000, (50,) * 30))


@given(LENGTHS, st.integers(1, 5))
def test_balance_shares_everything_once(lengths, ranks):
    given_samples = samples(lengths)
    shares = balance(given_samples, ranks)
    assert len(shares) == ranks
    assert all(shares)
    shared = sorted(int(s.token_ids[0]) for share in shares for s in share if len(s.targets))
    assert shared == sorted(int(s.token_ids[0]) for s in given_samples)


def test_balance_is_by_cost():
    """A rank with the long sequence gets fewer of the short ones."""
    shares = balance(samples([3000, *[100] * 20]), 2)
    loads = [sum(s.cost for s in share) for share in shares]
    assert loads[0] == pytest.approx(7394, abs=1)
    assert [len(share) for share in shares] == [1, 20]
