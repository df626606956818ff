"""Every token of every sequence is trained once, by the row that predicts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.data.micro_batches import AttentionBucket, BadSampleError, TrainingSample
from learner.data.packing import balance_samples, make_attention_buckets, make_micro_batches, pack_micro_batch
from learner.data.sample_checks import check_samples
from learner.losses.token_columns import make_token_columns
from learner.models.flops import count_training_flops
from learner.models.qwen import QWEN_FAMILIES, QwenConfig

ONE = make_token_columns(np.zeros(1), np.zeros(1), 1.0)
LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=30)


def sample(length: int, first: int = 0) -> TrainingSample:
    """Token ids that name their place: first, first + 1, ..."""
    targets = np.arange(max(1, length // 2), length)
    columns = make_token_columns(-targets, np.full(len(targets), first), 0.5)
    return TrainingSample(np.arange(first, first + length, dtype=np.int32), targets, columns)


def attention_only(sample: TrainingSample) -> float:
    return float(len(sample.token_ids)) ** 2


def samples(lengths) -> list[TrainingSample]:
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return [sample(length, int(start)) for length, start in zip(lengths, starts, strict=True)]


def test_rows_predict_their_labels():
    batch = pack_micro_batch([sample(4, 10), sample(3, 20)])
    assert batch.token_ids.tolist() == [10, 11, 12, 13, 20, 21, 22]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.rows.tolist() == [1, 2, 4, 5]
    assert batch.labels.tolist() == [12, 13, 21, 22]
    assert batch.columns.behaviour.tolist() == [-2, -3, -1, -2]
    assert batch.columns.advantages.tolist() == [10, 10, 20, 20]
    assert batch.columns.sequence.tolist() == [0, 0, 1, 1]


@given(LENGTHS, st.integers(60, 200), st.sampled_from([1, 2, 4]))
def test_every_token_with_loss_is_in_exactly_one_batch(lengths, max_tokens, multiple):
    made = make_micro_batches(samples(lengths), max_tokens, attention_only, multiple)
    expected = sorted(int(token) for s in samples(lengths) for token in s.token_ids[s.targets])
    assert sorted(int(label) for batch in made for label in batch.labels) == expected
    for batch in made:
        assert (batch.token_ids[batch.rows] + 1 == batch.labels).all()
        assert len(set(batch.rows.tolist())) == len(batch.rows)
        assert len(batch.token_ids) % multiple == 0
        assert len(batch.token_ids) < max_tokens + multiple, "the budget bounds memory"
        assert sum(sum(bucket.lengths) for bucket in batch.buckets) == len(batch.token_ids)


@given(LENGTHS, st.integers(60, 200))
def test_micro_batches_are_few(lengths, max_tokens):
    """Any two that would fit into one have a third that balance wanted: at most twice the fewest possible."""
    made = make_micro_batches(samples(lengths), max_tokens, attention_only)
    assert len(made) <= 2 * -(-sum(lengths) // max_tokens)


def test_micro_batches_are_balanced_by_cost():
    """In a pipeline every stage waits for the costliest: the two long ones must not be in one pass."""
    made = make_micro_batches(samples([40, 40, *[10] * 12]), 120, attention_only)
    assert [max(length for b in batch.buckets for length in b.lengths) for batch in made] == [40, 40]


@pytest.mark.parametrize(
    ("given_sample", "message"),
    [
        (sample(11), r"11 tokens is longer than learner\.micro_batch_tokens × learner\.cp = 10: raise"),
        (TrainingSample(np.array([1, 20]), np.array([1]), ONE), "token 20, and the model's vocabulary has 20"),
        (TrainingSample(np.array([1, -1]), np.array([1]), ONE), "token -1"),
    ],
)
def test_a_sequence_that_cannot_be_trained_is_named(given_sample, message):
    with pytest.raises(BadSampleError, match=message):
        check_samples([sample(10), given_sample], most_tokens=10, vocabulary=20)


@given(LENGTHS)
def test_buckets_cover_the_sequences_in_order(lengths):
    lengths = sorted(lengths, reverse=True)
    made = make_attention_buckets(lengths)
    assert [length for bucket in made for length in bucket.lengths] == lengths
    assert [bucket.start for bucket in made] == [0, *np.cumsum([sum(b.lengths) for b in made])[:-1]]


def test_a_long_sequence_does_not_pad_the_short_ones():
    """One padded call for a length of 4000 and thirty of 50 would cost eighty times the work."""
    assert make_attention_buckets([4000] + [50] * 30) == (
        AttentionBucket(0, (4000,)),
        AttentionBucket(4000, (50,) * 30),
    )


@given(LENGTHS, st.integers(1, 5))
def test_balance_shares_everything_once(lengths, ranks):
    given_samples = samples(lengths)
    shares = balance_samples(given_samples, ranks, attention_only)
    assert len(shares) == ranks
    assert all(shares)
    shared = sorted(int(s.token_ids[0]) for share in shares for s in share if len(s.targets))
    assert shared == sorted(int(s.token_ids[0]) for s in given_samples)


def test_balance_is_by_the_models_arithmetic():
    """A rank with the long sequence gets fewer of the short ones; how many depends on the model's shape."""
    shape = QwenConfig(QWEN_FAMILIES["qwen3"], 1000, 64, 128, 2, 4, 2, 16, 1e-6, 1e4, 4096, tie_word_embeddings=True)
    cost = count_training_flops(shape)
    layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 128
    assert cost.count_sequence(100, 7) == 6 * (100 * 2 * layer + 7 * 1000 * 64 + 2 * 64 * 100 * 100)
    given_samples = samples([3000, *[100] * 200])
    shares = balance_samples(given_samples, 2, lambda s: cost.count_sequence(len(s.token_ids), len(s.targets)))
    loads = [sum(cost.count_sequence(len(s.token_ids), len(s.targets)) for s in share) for share in shares]
    assert max(loads) / min(loads) < 1.05
    assert 1 < len(shares[0]) < 60
