"""The preparation of a leased batch: which trajectories are trained or dropped, and each token's weight."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.data.batch import make_supervised_samples, read_batch
from learner.data.micro_batches import BadSampleError
from learner.losses.policy_loss import likelihood_loss
from learner.losses.settings import LossAggregation
from learner.spec import LearnerSpec
from protocol.codec import pack_trajectory
from protocol.staleness import StaleTokenPolicy
from protocol.trajectory import (
    DropReason,
    EpisodeStatus,
    GroupId,
    Reward,
    RolloutRequest,
    Segment,
    Trajectory,
    Turn,
    TurnKind,
)
from protocol.weights import NO_VERSION, Lineage, WeightVersion
from tests.support.runs.learner_specs import make_objective, make_spec


def segment(mask, version, first=0, **place) -> Segment:
    mask = np.array(mask, dtype=np.uint8)
    return Segment(
        np.arange(first, first + len(mask), dtype=np.int32),
        mask,
        np.where(mask, -0.5, 0).astype(np.float32),
        np.where(mask, version, -1).astype(np.int32),
        **place,
    )


def encoded(sample: int, reward: float, *segments: Segment) -> bytes:
    return pack_trajectory(
        Trajectory(
            RolloutRequest("run", GroupId(1), sample, 2, "task", 0), EpisodeStatus.COMPLETED, Reward(reward), segments
        )
    )


@pytest.fixture
def lineage():
    made = Lineage()
    for step in range(6):
        made.add(WeightVersion(step), step, WeightVersion(step - 1) if step else NO_VERSION)
    return made


def settings(stale_policy=StaleTokenPolicy.MASK, **objective) -> LearnerSpec:
    return make_spec(
        model_path="unused",
        max_staleness=2,
        stale_policy=stale_policy,
        objective=make_objective(**{"advantage": "no_std"} | objective),
    )


def advantages_of(batch) -> list[list[float]]:
    return [sample.columns.advantages.tolist() for sample in batch.samples]


def total_weight(batch) -> float:
    return sum(float(sample.columns.weights.sum()) for sample in batch.samples)


def test_tokens_and_advantages(lineage):
    payload = [encoded(0, 1.0, segment([0, 0, 1, 1], 5)), encoded(1, 0.0, segment([0, 1, 1], 5))]
    batch = read_batch(payload, lineage, WeightVersion(5), settings())
    assert batch.trained == ("train-g000001-s00", "train-g000001-s01")
    assert [s.targets.tolist() for s in batch.samples] == [[2, 3], [1, 2]]
    assert advantages_of(batch) == [[0.5, 0.5], [-0.5, -0.5]]
    assert [s.columns.weights.tolist() for s in batch.samples] == [[0.25, 0.25], [0.25, 0.25]]
    assert "reward_mean" not in batch.metrics, "a batch of groups with unequal rewards is no fair sample of them"


@pytest.mark.parametrize(
    ("policy", "denominator", "trained"),
    [
        (StaleTokenPolicy.MASK, 6, ["s00", "s01"]),
        (StaleTokenPolicy.WAIT, 6, ["s00", "s01"]),
        (StaleTokenPolicy.DROP, 2, ["s00"]),
    ],
)
def test_stale_policies(lineage, policy, denominator, trained):
    """mask and wait keep a stale token's weight in the mean; drop, as others do it, forgets the trajectory."""
    old = segment([0, 1, 1, 1, 1], 0)
    half_old = Segment(old.token_ids, old.loss_mask, old.logprobs, np.array([-1, 0, 0, 5, 5], np.int32))
    payload = [encoded(0, 1.0, segment([0, 1, 1], 5)), encoded(1, 0.0, half_old)]
    batch = read_batch(payload, lineage, WeightVersion(5), settings(stale_policy=policy))
    for sample in batch.samples:
        np.testing.assert_allclose(sample.columns.weights, 1 / denominator)
    assert [name[-3:] for name in batch.trained] == trained
    assert set(batch.dropped.values()) == ({DropReason.ALL_STALE} if policy is StaleTokenPolicy.DROP else set())
    assert batch.metrics["staleness_max"] == 0
    assert batch.metrics["masked_tokens"] == (0 if policy is StaleTokenPolicy.DROP else 2), (
        "a dropped token is no masked one"
    )


def test_turns_during_which_weights_changed_are_counted(lineage):
    turns = tuple(
        Turn(TurnKind.MODEL, at, at + 1, key_version=5, mixed_prefix=mixed, server_switches=cuts)
        for at, (mixed, cuts) in enumerate([(False, 0), (True, 0), (True, 2)], start=1)
    )
    payload = [encoded(0, 1.0, segment([0, 1, 1, 1], 5, turns=turns)), encoded(1, 0.0, segment([0, 1], 5))]
    metrics = read_batch(payload, lineage, WeightVersion(5), settings()).metrics
    assert [metrics[name] for name in ("turns", "mixed_prefix_turns", "server_switched_turns")] == [3, 2, 1]


def test_the_tokens_of_a_batch_are_counted_by_age(lineage):
    """A histogram that counts masked tokens, or prompts, would say that the bound was broken."""
    mixed = segment([0, 1, 1, 1, 1], 0)
    mixed = Segment(mixed.token_ids, mixed.loss_mask, mixed.logprobs, np.array([-1, 0, 3, 5, 5], np.int32))
    batch = read_batch(
        [encoded(0, 1.0, mixed), encoded(1, 0.0, segment([1, 1], 4))], lineage, WeightVersion(5), settings()
    )
    assert batch.staleness_histogram == (2, 2, 1)
    assert sum(batch.staleness_histogram) == batch.metrics["trained_tokens"]


def test_the_baseline_includes_members_without_remaining_tokens(lineage):
    """A trajectory that is too old to train still says how hard the task is."""
    payload = [encoded(0, 1.0, segment([0, 1], 5)), encoded(1, 0.0, segment([0, 1], 0))]
    batch = read_batch(payload, lineage, WeightVersion(5), settings())
    assert batch.dropped == {"train-g000001-s01": DropReason.ALL_STALE}
    assert advantages_of(batch) == [[0.5]]
    assert total_weight(batch) == 0.5, "the token that is too old keeps its half of the mean"


def test_a_segment_has_its_parents_tokens_as_context(lineage):
    """A harness that forks a conversation: the branch is trained in the context that it had."""
    payload = [
        encoded(0, 1.0, segment([0, 1, 0, 1], 5, first=10), segment([0, 1], 5, first=50, parent=0, offset=2)),
        encoded(1, 0.0, segment([0, 1], 5)),
    ]
    batch = read_batch(payload, lineage, WeightVersion(5), settings())
    assert batch.samples[1].token_ids.tolist() == [10, 11, 50, 51]
    assert batch.samples[1].targets.tolist() == [3]
    assert total_weight(batch) == 1


def _trained_tokens(batch):
    """Each token with loss: the sequence it is in, and all that its loss is told of it."""
    return sorted(
        (sample.token_ids.tolist(), target, *values, sample.trajectory_index)
        for sample in batch.samples
        for target, *values in zip(
            sample.targets.tolist(),
            sample.columns.behaviour.tolist(),
            sample.columns.advantages.tolist(),
            sample.columns.weights.tolist(),
            sample.columns.staleness.tolist(),
            strict=True,
        )
    )


@given(st.data(), st.sampled_from(StaleTokenPolicy), st.sampled_from(LossAggregation))
def test_splitting_a_linear_episode_into_segments_does_not_change_the_batch(data, policy, aggregation):
    """A harness that hands its history over in pieces trains the same sequences, with the same weight in the mean: else
    a sequence's ratio would depend on how it was cut, and every piece would compute what precedes it again."""
    lineage = Lineage()
    for step in range(6):
        lineage.add(WeightVersion(step), step, WeightVersion(step - 1) if step else NO_VERSION)
    length = data.draw(st.integers(2, 12))
    mask = np.array(data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)), np.uint8)
    versions = np.array(data.draw(st.lists(st.integers(0, 5), min_size=length, max_size=length)), dtype=np.int32)
    logprobs = np.linspace(-2, -1, length, dtype=np.float32) * mask
    whole = Segment(np.arange(length, dtype=np.int32), mask, logprobs, np.where(mask, versions, -1))
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1))))
    bounds = list(zip([0, *cuts], [*cuts, length], strict=True))
    pieces = [
        Segment(
            whole.token_ids[start:end],
            mask[start:end],
            logprobs[start:end],
            whole.versions[start:end],
            parent=index - 1,
            offset=start,
        )
        for index, (start, end) in enumerate(bounds)
    ]
    other = encoded(1, 0.0, segment([0, 1, 1], 5, first=90))
    one, cut = (
        read_batch(
            [encoded(0, 1.0, *made), other],
            lineage,
            WeightVersion(5),
            settings(policy, aggregation=aggregation, aggregation_tokens=16),
        )
        for made in ([whole], pieces)
    )
    assert _trained_tokens(one) == _trained_tokens(cut)
    assert (one.trained, one.dropped, one.staleness_histogram, one.metrics) == (
        (cut.trained, cut.dropped, cut.staleness_histogram, cut.metrics)
    )


def test_a_first_token_without_a_prompt_is_weighted_but_not_trained(lineage):
    """A harness that sampled without a prompt: its first token is in the mean, and cannot be trained."""
    batch = read_batch(
        [encoded(0, 1.0, segment([1, 1, 1], 5)), encoded(1, 0.0, segment([1], 5))],
        lineage,
        WeightVersion(5),
        settings(),
    )
    assert [sample.targets.tolist() for sample in batch.samples] == [[1, 2]]
    assert batch.samples[0].columns.weights.tolist() == [0.25, 0.25]


def test_supervised_samples_leave_out_first_tokens():
    ids = np.arange(4, dtype=np.int32)
    found = make_supervised_samples([(ids, np.array([1, 0, 1, 1], np.uint8)), (ids, np.array([1, 0, 0, 0], np.uint8))])
    assert [s.targets.tolist() for s in found] == [[2, 3]]
    assert found[0].columns.weights.tolist() == [0.5, 0.5]


def test_a_weighted_batch_has_the_mean_over_its_weighted_tokens():
    """Σ w · −log π ÷ Σ w, both over tokens with loss, in float64."""
    rng = np.random.default_rng(3)
    masks = [(rng.random(length) < 0.6).astype(np.uint8) for length in (3, 9, 2, 30)]
    weights, logprobs = [0.5, 2.0, 0.0, 0.25], [rng.normal(-3, 1, len(mask)) for mask in masks]
    found = make_supervised_samples([(np.arange(len(mask), dtype=np.int32), mask) for mask in masks], weights)
    above = sum(w * -(lp * m)[1:].sum() for w, lp, m in zip(weights, logprobs, masks, strict=True))
    expected = above / sum(w * int(m[1:].sum()) for w, m in zip(weights, masks, strict=True))
    kept = [logprobs[index] for index in (0, 1, 3)]
    loss = sum(
        likelihood_loss(torch.from_numpy(lp[sample.targets]), sample.columns.map(torch.from_numpy)).loss.item()
        for lp, sample in zip(kept, found, strict=True)
    )
    assert loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_an_invalid_sample_weight_is_refused(weight):
    """A negative one would teach the model to avoid what it is shown, without a bound."""
    with pytest.raises(BadSampleError, match="finite and at least 0"):
        make_supervised_samples([(np.arange(4, dtype=np.int32), np.ones(4, np.uint8))] * 2, [1.0, weight])


def test_only_turns_sampled_and_prefilled_with_the_current_weights_are_on_policy(lineage):
    """Otherwise drift would be mistaken for a difference between serving and training."""
    versions = np.array([-1, 5, 5, -1, 5, 4, -1, 5, 5, 4, 4], np.int32)
    mask = (versions >= 0).astype(np.uint8)
    turns = (
        Turn(TurnKind.MODEL, 1, 3, key_version=5),
        Turn(TurnKind.OBSERVATION, 3, 4),
        Turn(TurnKind.MODEL, 4, 6, key_version=5),  # ends on other weights
        Turn(TurnKind.MODEL, 7, 9, key_version=4, mixed_prefix=True),
        Turn(TurnKind.MODEL, 9, 11, key_version=4),  # of one version, an older one
    )
    made = segment(mask, 0)
    both = Segment(made.token_ids, mask, made.logprobs, versions, turns)
    batch = read_batch(
        [encoded(0, 1.0, both), encoded(1, 0.0, segment([0, 1], 5))], lineage, WeightVersion(5), settings()
    )
    assert [sample.columns.on_policy.tolist() for sample in batch.samples] == [[1, 1, 0, 0, 0, 0, 0, 0], [0]]


@pytest.mark.parametrize("mask", [[0, 1, 1], [0, 1, 0.5, 1], [0, 1, np.nan, 1]])
def test_an_invalid_loss_mask_is_refused(mask):
    with pytest.raises(BadSampleError, match=r"sequence 0 has token ids \[4\] and a loss mask"):
        make_supervised_samples([(np.arange(4, dtype=np.int32), np.array(mask, np.float32))])
