"""Rules over a whole batch, and what cannot be trained."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from learner.data.micro_batches import TrainingSample
from learner.data.sample_checks import check_samples
from learner.losses.corrections import second_moment_mask
from learner.losses.settings import CorrectionSettings, KlPenaltySettings, RewardShapingSettings
from learner.losses.token_columns import make_token_columns
from learner.training.update import split_minibatches
from protocol.errors import UserError
from tests.support.runs.learner_specs import make_objective


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=9), st.floats(0.01, 2.0))
def test_second_moment_mask_is_the_largest_set_that_holds_the_bound(gaps, bound):
    """M2PO: as many tokens as can stay, and those that go have the largest moments."""
    squares = np.array(gaps) ** 2
    keep = second_moment_mask(np.array(gaps), bound)
    if keep.any():
        assert squares[keep].mean() <= bound + 1e-12
        assert (squares[keep].max() <= squares[~keep]).all()
    sizes = [
        len(chosen)
        for count in range(1, len(gaps) + 1)
        for chosen in itertools.combinations(squares, count)
        if np.mean(chosen) <= bound - 1e-12
    ]
    assert keep.sum() >= max(sizes, default=0)


def test_second_moment_mask_of_nothing():
    assert second_moment_mask(np.zeros(0), 0.04).tolist() == []
    assert second_moment_mask(np.array([5.0, -5.0]), 0.04).tolist() == [False, False]


def sample(length: int, origin: int = 0) -> TrainingSample:
    targets = np.arange(1, length)
    return TrainingSample(
        np.arange(length, dtype=np.int32),
        targets,
        make_token_columns(-targets, np.ones(len(targets)), 0.5),
        trajectory_index=origin,
    )


@pytest.mark.parametrize(("count", "parts"), [(1, 1), (2, 2), (3, 3), (9, 5)])
def test_minibatches_share_everything_once_and_keep_a_tokens_weight(count, parts):
    given_samples = [sample(length, length) for length in (3, 9, 4, 7, 5)]
    found = split_minibatches(given_samples, count, lambda each: len(each.token_ids))
    assert len(found) == parts
    assert sorted(each.trajectory_index for part in found for each in part) == [3, 4, 5, 7, 9]
    for each in itertools.chain(*found):
        np.testing.assert_allclose(each.columns.weights, 0.5 * parts)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"token_ids": np.array([1, 2, 99], np.int32)}, "vocabulary has 50"),
        ({"token_ids": np.array([1, -2, 3], np.int32)}, "vocabulary has 50"),
        ({"token_ids": np.array([1.0, 2.0, 3.0])}, "vectors of integers"),
        ({"token_ids": np.array([[1, 2, 3]], np.int32)}, "vectors of integers"),
        ({"targets": np.array([0, 1])}, "from 0 to 1"),
        ({"targets": np.array([1, 3])}, "from 1 to 3"),
        ({"targets": np.array([2, 1])}, "named once"),
        ({"targets": np.array([1])}, "columns of 2"),
    ],
)
def test_samples_that_do_not_fit_the_model_are_refused(changes, word):
    """A token above the vocabulary is silently zero on a tensor-parallel rank."""
    check_samples([sample(3)], vocabulary=50, most_tokens=3)
    with pytest.raises(UserError, match=word):
        check_samples([sample(3), replace(sample(3), **changes)], vocabulary=50, most_tokens=3)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(UserError, match="different shapes"):
        make_token_columns(np.zeros(3), np.zeros(2), 0.5)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: make_objective(eps_low=0.0), "eps_low"),
        (lambda: make_objective(dual_clip=1.2), "set learner.dual_clip = 3.0"),
        (lambda: make_objective(loss="reinforce"), "set learner.tis_cap"),
        (lambda: make_objective(tis_cap=2.0), "learner.loss = 'reinforce'"),
        (lambda: make_objective(loss="reinforce", tis_cap=-1.0), "tis_cap\n.*greater than 0"),
        (lambda: make_objective(tv_bound=1.5), "tv_bound"),
        (lambda: make_objective(minibatches=0), "minibatches\n.*greater than or equal to 1"),
        (lambda: make_objective(aggregation="constant"), "aggregation_tokens"),
        (lambda: make_objective(corrections=CorrectionSettings(proximal="recomputed")), "set learner.minibatches = 2"),
        (
            lambda: make_objective(loss="dppo_tv", corrections=CorrectionSettings(proximal="log_linear")),
            "correction.proximal = 'none'",
        ),
        (lambda: CorrectionSettings(band=(1.2, 2.0)), "correction.band"),
        (lambda: CorrectionSettings(cap=0.0), "cap\n.*greater than 0"),
        (lambda: CorrectionSettings(m2po=0.0), "m2po"),
        (lambda: KlPenaltySettings(coefficient=-1.0), "coefficient"),
        (lambda: RewardShapingSettings(scale=0.0), "shaping.scale"),
        (lambda: RewardShapingSettings(overlong_tokens=5), "shaping.overlong_buffer"),
    ],
)
def test_contradictory_objectives_are_refused(make, word):
    with pytest.raises((UserError, ValidationError), match=word):
        make()
