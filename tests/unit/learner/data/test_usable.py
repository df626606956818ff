"""What a learner cannot use is left out of its batch.  If this fails, one such trajectory ends every resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from learner.data.usable import sort_out_unusable
from protocol.codec import pack_trajectory
from protocol.trajectory import Segment, Trajectory
from protocol.usability import TrajectoryLimits
from tests.support.runs.trajectories import make_segment, make_trajectory

LIMITS = TrajectoryLimits(vocabulary=200, longest_sequence=50)


def changed(**arrays: object) -> Segment:
    return replace(make_segment(), **arrays)


FOREIGN = {
    "version 2047.1048575": changed(versions=np.array([-1, -1, -1, 0, 0, 2**31 - 1, 0, 0], np.int32)),
    "token 2000000": changed(token_ids=np.array([1, 2, 3, 2_000_000, 4, 5, 6, 7], np.int32)),
    "sequence of 51 tokens": make_segment(sampled=48),
    "log-probability 3": changed(logprobs=np.array([0, 0, 0, -1, 3, -1, -1, -1], np.float32)),
}


@pytest.mark.parametrize("fault", FOREIGN)
def test_a_trajectory_of_other_weights_or_another_model_is_left_out_with_the_reason(fault: str) -> None:
    trajectories = [make_trajectory(0, sample) for sample in range(3)]
    trajectories[1] = make_trajectory(0, 1, segments=(FOREIGN[fault],))
    payload = [pack_trajectory(each) for each in trajectories]
    found = sort_out_unusable(payload, {0}, LIMITS)
    assert found.payload == [payload[0], payload[2]]
    ((name, why),) = found.faults.items()
    assert name == "train-g000000-s01"
    assert fault in why


def test_a_prefix_counts_towards_the_longest_sequence() -> None:
    trunk, branch = make_segment(sampled=30), replace(make_segment(sampled=20), parent=0, offset=33)
    found = sort_out_unusable([pack_trajectory(make_trajectory(segments=(trunk, branch)))], {0}, LIMITS)
    assert "sequence of 56 tokens" in found.faults["train-g000000-s00"]


def test_a_member_that_is_left_alone_in_its_group_is_left_out_too() -> None:
    def two(group: int, sample: int, version: int) -> Trajectory:
        return make_trajectory(group, sample, size=2, segments=(make_segment(version=version),))

    payload = [pack_trajectory(each) for each in (two(0, 0, 0), two(0, 1, 9), two(1, 0, 0), two(1, 1, 0))]
    found = sort_out_unusable(payload, {0}, LIMITS)
    assert found.payload == payload[2:]
    assert found.faults["train-g000000-s00"] == "no other trajectory of its group can be used"


def test_a_group_of_one_is_left_out() -> None:
    found = sort_out_unusable([pack_trajectory(make_trajectory(size=1))], {0}, LIMITS)
    assert "group of one" in found.faults["train-g000000-s00"]
