"""Advantages against the statistics module."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.losses.advantages import compute_advantages
from learner.losses.settings import AdvantageEstimator

REWARDS = [1.0, 0.0, 0.0, 0.5, 1.0, 0.0]
GROUPS = [7, 7, 3, 3, 7, 3]


def run(rewards, groups, kind):
    return compute_advantages(torch.tensor(rewards), torch.tensor(groups), kind).tolist()


def members(groups, rewards, group):
    return [reward for at, reward in zip(groups, rewards, strict=True) if at == group]


def test_group_is_the_standard_score():
    found = run(REWARDS, GROUPS, AdvantageEstimator.GROUP)
    for reward, group, advantage in zip(REWARDS, GROUPS, found, strict=True):
        own = members(GROUPS, REWARDS, group)
        assert advantage == pytest.approx((reward - statistics.mean(own)) / (statistics.stdev(own) + 1e-6), rel=1e-5)


def test_leave_one_out_uses_the_others():
    for index, advantage in enumerate(run(REWARDS, GROUPS, AdvantageEstimator.LEAVE_ONE_OUT)):
        others = [r for i, r in enumerate(REWARDS) if GROUPS[i] == GROUPS[index] and i != index]
        assert advantage == pytest.approx(REWARDS[index] - statistics.mean(others), rel=1e-5)


def test_no_std_only_centres():
    found = run(REWARDS, GROUPS, AdvantageEstimator.NO_STD)
    for reward, group, advantage in zip(REWARDS, GROUPS, found, strict=True):
        assert advantage == pytest.approx(reward - statistics.mean(members(GROUPS, REWARDS, group)), abs=1e-6)


@pytest.mark.parametrize("kind", list(AdvantageEstimator))
def test_nothing_to_compare_is_zero(kind):
    """Equal rewards must not be blown up by a division by almost nothing; a single member has no baseline."""
    assert run([0.1] * 7 + [5.0], [1] * 7 + [2], kind) == [0.0] * 8


@pytest.mark.parametrize("kind", list(AdvantageEstimator))
def test_no_trajectories(kind):
    assert compute_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.int64), kind).tolist() == []


@given(
    st.lists(st.tuples(st.floats(-5, 5, width=16), st.integers(0, 3)), min_size=1, max_size=24),
    st.sampled_from(list(AdvantageEstimator)),
)
def test_each_group_sums_to_zero(tokens, kind):
    """An advantage says who did better than the group, never how good the group was."""
    rewards, groups = [r for r, _ in tokens], [g for _, g in tokens]
    found = run(rewards, groups, kind)
    for group in set(groups):
        assert sum(members(groups, found, group)) == pytest.approx(0, abs=1e-3)
