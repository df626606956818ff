"""If these fail, groups wait for samples that never come, or baselines are taken over too few."""

from __future__ import annotations

import pytest

from protocol.groups import GroupOutcome, GroupPlan, decide_group_outcome, minimum_members
from protocol.trajectory import TRAIN_PURPOSE, DropReason, GroupId, is_training_trajectory, make_trajectory_id


def test_a_group_stays_open_until_all_samples_have_arrived() -> None:
    assert decide_group_outcome(4, {0: 1.0, 1: 0.0, 2: 1.0}, [], dynamic_sampling=True) is GroupOutcome.OPEN


def test_a_full_group_with_different_rewards_is_ready() -> None:
    assert decide_group_outcome(4, {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0}, [], dynamic_sampling=True) is GroupOutcome.READY


def test_equal_rewards_teach_nothing() -> None:
    outcome = decide_group_outcome(3, {0: 0.1 + 0.2, 1: 0.3, 2: 0.3}, [], dynamic_sampling=True)
    assert outcome is GroupOutcome.ZERO_VARIANCE
    assert outcome.drop_reason is DropReason.ZERO_VARIANCE


@pytest.mark.parametrize(("size", "least"), [(2, 2), (3, 3), (4, 3), (5, 4), (8, 6), (16, 12)])
def test_infrastructure_may_lose_at_most_a_quarter_of_a_group(size: int, least: int) -> None:
    assert minimum_members(size) == least
    rewards = {sample: float(sample) for sample in range(least)}
    assert decide_group_outcome(size, rewards, range(least, size), dynamic_sampling=True) is GroupOutcome.READY
    del rewards[0]
    assert (
        decide_group_outcome(size, rewards, [0, *range(least, size)], dynamic_sampling=True)
        is GroupOutcome.TOO_FEW_MEMBERS
    )


def test_a_sample_that_arrives_after_it_was_abandoned_counts_once() -> None:
    assert decide_group_outcome(4, {0: 1.0, 1: 0.0, 2: 1.0}, [2], dynamic_sampling=True) is GroupOutcome.OPEN


def test_a_group_of_one_has_no_baseline() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        GroupPlan(GroupId(0), "task", (1,))


def test_each_attempt_of_a_request_has_the_seed_of_its_sample() -> None:
    plan = GroupPlan(GroupId(3), "task", (11, 12))
    assert [plan.rollout_request("run", 1, attempt).seed for attempt in range(2)] == [12, 12]
    assert plan.rollout_request("run", 1).trajectory_id == "train-g000003-s01"


@pytest.mark.parametrize(("purpose", "training"), [(TRAIN_PURPOSE, True), ("before", False), ("train-set", False)])
def test_only_training_samples_count_as_training_regardless_of_an_evaluations_name(
    purpose: str, *, training: bool
) -> None:
    name = make_trajectory_id(3, 1, purpose)
    assert (is_training_trajectory(name), is_training_trajectory(f"{name}-a0")) == (training, training)


def test_without_dynamic_sampling_a_group_without_variance_is_ready():
    assert decide_group_outcome(2, {0: 1.0, 1: 1.0}, [], dynamic_sampling=False) is GroupOutcome.READY
    assert decide_group_outcome(4, {0: 1.0, 1: 1.0}, [2, 3], dynamic_sampling=False) is GroupOutcome.TOO_FEW_MEMBERS
