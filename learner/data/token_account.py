"""Account of a step's tokens by staleness, length and turn.  Pure, numpy only.

The length of a trajectory is its number of sampled tokens.  Deciles refer to the step's own batch; buckets are powers
of two, the same in every step, so that they can be added up over a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from learner.data.sequences import iterate_model_turns
from learner.messages import TokenAccount
from protocol.staleness import StalenessVerdict, length_bucket, trained_share_by_decile
from protocol.trajectory import Trajectory

MASKED_REASON = "masked"
"""Reason of tokens above the bound in a trajectory that is trained."""


def account_tokens(trajectories: Sequence[Trajectory], verdicts: Sequence[StalenessVerdict]) -> TokenAccount:
    """Return the account of one batch at the step that uses it."""
    staleness: Counter[int] = Counter()
    turns: dict[int, list[int]] = {}
    lost: dict[str, Counter[str]] = {}
    for trajectory, verdict in zip(trajectories, verdicts, strict=True):
        for steps in verdict.staleness:
            values, counts = np.unique(steps[steps >= 0], return_counts=True)
            staleness.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        _add_turns(turns, trajectory, verdict)
        gone = verdict.sampled - verdict.trained
        if gone:
            reason = MASKED_REASON if verdict.drop is None else verdict.drop.value
            lost.setdefault(reason, Counter())[length_bucket(verdict.sampled)] += gone
    return TokenAccount(
        staleness_histogram=tuple(staleness[steps] for steps in range(max(staleness, default=-1) + 1)),
        share_by_decile=trained_share_by_decile(
            [verdict.sampled for verdict in verdicts], [verdict.trained for verdict in verdicts]
        ),
        by_turn=tuple((turns[turn][0], turns[turn][1]) for turn in sorted(turns)),
        untrained_tokens_by_length={reason: dict(counts) for reason, counts in lost.items()},
    )


def _add_turns(turns: dict[int, list[int]], trajectory: Trajectory, verdict: StalenessVerdict) -> None:
    """Add sampled and trained tokens to ``turns`` by the index of the model's turn."""
    for index, segment_index, turn in iterate_model_turns(trajectory.segments):
        sums = turns.setdefault(index, [0, 0])
        sums[0] += int(trajectory.segments[segment_index].loss_mask[turn.start : turn.end].sum())
        sums[1] += int(verdict.loss_masks[segment_index][turn.start : turn.end].sum())
