"""Pure rules for when a group closes, and with what outcome.

A group is n samples of one task.  It stays open until each sample has arrived or was abandoned (infrastructure failed
it more often than the replacement limit allows).  Slow samples never shrink a group; only infrastructure failures do:
with k ≥ max(2, ⌈0.75 n⌉) members it closes with k, with fewer it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol.trajectory import DropReason, GroupId, RolloutRequest

_SAME_REWARD = 1e-8
"""Rewards that differ by less are equal: parts summed in another order."""


class GroupOutcome(StrEnum):
    OPEN = "open"
    """A sample is still running."""
    READY = "ready"
    """Closed; the learner may train on its members."""
    ZERO_VARIANCE = "zero_variance"
    """Closed; no member has an advantage, so the group is dropped and replaced."""
    TOO_FEW_MEMBERS = "too_few_members"
    """Closed with too few members: the group is dropped, and its task returns to the sampler once."""

    CANCELLED = "cancelled"
    """Closed by a person: its members are dropped and its task is not repeated."""

    @property
    def drop_reason(self) -> DropReason | None:
        """Reason why members of a group with this outcome are dropped; None if they are kept."""
        return OUTCOME_DROP_REASONS.get(self)


OUTCOME_DROP_REASONS = {
    GroupOutcome.ZERO_VARIANCE: DropReason.ZERO_VARIANCE,
    GroupOutcome.TOO_FEW_MEMBERS: DropReason.TOO_FEW_MEMBERS,
    GroupOutcome.CANCELLED: DropReason.CANCELLED,
}
"""Drop reason by outcome, for the outcomes of groups that are never trained."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The scheduler's decision about a group, made before its first rollout request is sent."""

    group: GroupId
    task: str
    seeds: tuple[int, ...]
    """Sampling seeds, one per sample."""

    def __post_init__(self) -> None:
        if len(self.seeds) < 2:
            raise ValueError(f"group {self.group} has {len(self.seeds)} samples; a baseline needs at least 2")

    @property
    def size(self) -> int:
        return len(self.seeds)

    def rollout_request(self, run_id: str, sample: int, attempt: int = 0) -> RolloutRequest:
        """Return the request for attempt ``attempt`` (counted from 0) at ``sample``."""
        return RolloutRequest(run_id, self.group, sample, self.size, self.task, self.seeds[sample], attempt)


def minimum_members(size: int) -> int:
    """Return the fewest members with which a group of ``size`` may close."""
    return max(2, math.ceil(0.75 * size))


def decide_group_outcome(
    size: int, rewards: Mapping[int, float], abandoned: Collection[int], *, dynamic_sampling: bool
) -> GroupOutcome:
    """Return the outcome of a group of ``size`` samples, from the rewards by arrived sample and the abandoned samples.

    A sample that arrived after it was abandoned counts as arrived.  ``dynamic_sampling`` drops a group with equal
    rewards (DAPO, arXiv 2503.14476, section 3.2).
    """
    if len(rewards) + sum(sample not in rewards for sample in abandoned) < size:
        return GroupOutcome.OPEN
    if len(rewards) < minimum_members(size):
        return GroupOutcome.TOO_FEW_MEMBERS
    if dynamic_sampling and max(rewards.values()) - min(rewards.values()) <= _SAME_REWARD:
        return GroupOutcome.ZERO_VARIANCE
    return GroupOutcome.READY
