"""When a group closes, and with what outcome: pure rules.

A group is n samples of one task.  It stays open until each of its samples has arrived or was abandoned (infrastructure
failed it more often than the replacement limit allows).  Slowness never shrinks a group; only infrastructure can leave
it short: with k ≥ max(2, ⌈0.75 n⌉) members it closes at k, and below that it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol.trajectory import DropReason, GroupId, RolloutRequest

_SAME_REWARD = 1e-8
"""Rewards that differ by less are the same number after summing parts in another order."""


class GroupOutcome(StrEnum):
    OPEN = "open"
    """A sample is still out."""
    READY = "ready"
    """Closed, and the learner may train on its members."""
    ZERO_VARIANCE = "zero_variance"
    """Closed, and no member has an advantage: dropped and replaced."""
    INFRA_SHORT = "infra_short"
    """Closed with too few members: dropped, and its task goes back to the cursor once."""

    CANCELLED = "cancelled"
    """Closed by a person: what has arrived of it is dropped, and its task does not come again for it."""

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the members of a group with this outcome are dropped; None where they are not."""
        return OUTCOME_DROP_REASONS.get(self)


OUTCOME_DROP_REASONS = {
    GroupOutcome.ZERO_VARIANCE: DropReason.ZERO_VARIANCE,
    GroupOutcome.INFRA_SHORT: DropReason.INFRA_SHORT,
    GroupOutcome.CANCELLED: DropReason.CANCELLED,
}
"""Outcomes of a group that is never trained, and why its members are dropped then."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What the conductor decides before a group's first ticket leaves."""

    group: GroupId
    task: str
    seeds: tuple[int, ...]
    """One sampling seed per sample; their number is the group's size."""

    def __post_init__(self) -> None:
        if len(self.seeds) < 2:
            raise ValueError(f"group {self.group} has {len(self.seeds)} samples; a baseline needs at least 2")

    @property
    def size(self) -> int:
        return len(self.seeds)

    def rollout_request(self, run_id: str, sample: int, attempt: int = 0) -> RolloutRequest:
        """The right to run ``sample`` for the ``attempt``-th time (counted from 0)."""
        return RolloutRequest(run_id, self.group, sample, self.size, self.task, self.seeds[sample], attempt)


def minimum_members(size: int) -> int:
    """Fewest members with which a group of ``size`` may close."""
    return max(2, math.ceil(0.75 * size))


def decide_group_outcome(
    size: int, rewards: Mapping[int, float], abandoned: Collection[int], *, dynamic_sampling: bool = True
) -> GroupOutcome:
    """Outcome of a group of ``size`` samples, given the rewards of those that arrived and those given up.

    A sample that arrived after it was given up counts as arrived.  ``dynamic_sampling`` drops a group whose rewards are
    all the same (DAPO, arXiv 2503.14476, section 3.2).
    """
    if len(rewards) + sum(sample not in rewards for sample in abandoned) < size:
        return GroupOutcome.OPEN
    if len(rewards) < minimum_members(size):
        return GroupOutcome.INFRA_SHORT
    if dynamic_sampling and max(rewards.values()) - min(rewards.values()) <= _SAME_REWARD:
        return GroupOutcome.ZERO_VARIANCE
    return GroupOutcome.READY
