"""If these fail, the learner trains on tokens that are too old, or rollout runs too far ahead, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.staleness import (
    AdmissionLimit,
    AdmissionMode,
    StaleTokenPolicy,
    apply_stale_token_policy,
    may_take_step,
    token_staleness,
)
from protocol.trajectory import DropReason, Segment
from protocol.weights import Lineage, WeightVersion
from tests.support.runs.trajectories import make_segment


def _chain(length: int) -> Lineage:
    lineage = Lineage()
    for step in range(length):
        lineage.add(WeightVersion(step), step, WeightVersion(step - 1))
    return lineage


def _segment(*versions: int) -> Segment:
    """One token per version; −1 is a token that was not sampled."""
    base = make_segment(0, len(versions))
    mask = np.array([version >= 0 for version in versions], dtype=np.uint8)
    return Segment(base.token_ids, mask, base.logprobs * mask, np.array(versions, dtype=np.int32))


def test_the_modes_differ_by_their_lead_alone() -> None:
    assert [AdmissionLimit(mode, 2, 4).max_steps_ahead for mode in AdmissionMode] == [0, 1, 4]


def test_a_bound_that_its_mode_must_break_is_refused() -> None:
    with pytest.raises(ValueError, match="max_staleness"):
        AdmissionLimit(AdmissionMode.ONE_STEP_OFF, 2, 0)


def test_ages_follow_the_lineage_per_token() -> None:
    segment = _segment(-1, 0, 0, 3, -1, 5)
    staleness = token_staleness(segment.versions, segment.loss_mask, _chain(6), 5)
    assert staleness.tolist() == [-1, 5, 5, 2, -1, 0]


def test_a_token_of_unknown_weights_is_an_error() -> None:
    segment = _segment(99)
    with pytest.raises(KeyError):
        token_staleness(segment.versions, segment.loss_mask, _chain(2), 1)


def test_mask_takes_the_loss_of_old_tokens_only() -> None:
    verdict = apply_stale_token_policy(
        StaleTokenPolicy.MASK, [_segment(-1, 0, 3), _segment(5)], _chain(6), 5, max_staleness=2
    )
    assert [mask.tolist() for mask in verdict.loss_masks] == [[0, 0, 1], [1]]
    assert (verdict.drop, verdict.sampled, verdict.trained) == (None, 3, 2)


def test_a_trajectory_without_remaining_tokens_is_dropped_with_its_reason() -> None:
    verdict = apply_stale_token_policy(StaleTokenPolicy.MASK, [_segment(-1, 0, 1)], _chain(6), 5, max_staleness=2)
    assert verdict.drop is DropReason.ALL_STALE


def test_the_drop_policy_drops_a_trajectory_for_one_old_token() -> None:
    assert (
        apply_stale_token_policy(StaleTokenPolicy.DROP, [_segment(0, 5)], _chain(6), 5, max_staleness=2).drop
        is DropReason.ALL_STALE
    )
    assert apply_stale_token_policy(StaleTokenPolicy.DROP, [_segment(3, 5)], _chain(6), 5, max_staleness=2).drop is None


@given(st.sampled_from(StaleTokenPolicy), st.lists(st.integers(-1, 9), min_size=1, max_size=12), st.integers(0, 9))
def test_no_policy_ever_trains_a_token_above_the_bound(
    policy: StaleTokenPolicy, versions: list[int], max_staleness: int
) -> None:
    segment, lineage = _segment(*versions), _chain(10)
    (mask,) = apply_stale_token_policy(policy, [segment], lineage, 9, max_staleness).loss_masks
    staleness = token_staleness(segment.versions, segment.loss_mask, lineage, 9)
    assert not (mask & ((staleness > max_staleness) | (staleness < 0))).any()


def test_the_wait_policy_holds_the_learner_only_for_a_running_episode() -> None:
    assert may_take_step(5, None, 0)
    assert may_take_step(5, 4, max_staleness=2)
    assert not may_take_step(5, 3, max_staleness=2)
