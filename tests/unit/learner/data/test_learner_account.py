"""If these fail, what a bound on staleness costs, and whom, cannot be read from metrics.jsonl."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from learner.data.token_account import account_tokens
from protocol.staleness import StaleTokenPolicy, apply_stale_token_policy
from protocol.trajectory import Segment, Trajectory, Turn, TurnKind
from protocol.weights import Lineage, WeightVersion
from tests.support.runs.trajectories import make_segment, make_trajectory

MAX_STALENESS = 2


def _chain(length: int) -> Lineage:
    lineage = Lineage()
    for step in range(length):
        lineage.add(WeightVersion(step), step, WeightVersion(step - 1))
    return lineage


def _trajectory(*turns: list[int]) -> Trajectory:
    """One model turn for each list: the versions of its tokens, with an observation of two tokens between."""
    versions: list[int] = []
    spans: list[Turn] = []
    for turn in turns:
        versions += [-1, -1]
        spans.append(Turn(TurnKind.OBSERVATION, len(versions) - 2, len(versions)))
        spans.append(Turn(TurnKind.MODEL, len(versions), len(versions) + len(turn)))
        versions += turn
    base = make_segment(0, len(versions))
    mask = np.array([version >= 0 for version in versions], np.uint8)
    segment = Segment(base.token_ids, mask, base.logprobs * mask, np.array(versions, np.int32), tuple(spans))
    return replace(make_trajectory(), segments=(segment,))


def test_every_sampled_token_is_counted_by_age_turn_and_length() -> None:
    batch = [_trajectory([0, 0], [3, 4]), _trajectory([5] * 8), _trajectory([0, 1, 1])]
    lineage = _chain(6)
    verdicts = [
        apply_stale_token_policy(StaleTokenPolicy.MASK, each.segments, lineage, 5, MAX_STALENESS) for each in batch
    ]
    found = account_tokens(batch, verdicts)
    assert found.staleness_histogram == (8, 1, 1, 0, 2, 3)
    assert found.by_turn == ((13, 8), (2, 2))
    assert found.untrained_tokens_by_length == {"masked": {"4": 2}, "all_stale": {"2": 3}}
    assert found.share_by_decile == (), "three trajectories have no tenths"


def test_the_trained_share_is_reported_by_length_decile() -> None:
    batch = [_trajectory([5] * length) for length in range(19, 0, -1)] + [_trajectory([0] * 10 + [5] * 10)]
    lineage = _chain(6)
    verdicts = [
        apply_stale_token_policy(StaleTokenPolicy.MASK, each.segments, lineage, 5, MAX_STALENESS) for each in batch
    ]
    assert account_tokens(batch, verdicts).share_by_decile == (*[1.0] * 9, 29 / 39)
