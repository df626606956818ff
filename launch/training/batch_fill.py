"""Decides how many groups a step leases, so that dropped trajectories are made up for.  Pure.

A trajectory whose tokens are all too stale is dropped by the step that leased it: mostly a short one that waited for a
slow member of its group.  The next step leases additional groups for the dropped places, at most twice the batch in
total (the journal's budget holds that much).  Admission gets the same count and opens as many more groups: steps never
lease more than is opened for them, or the last step would wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class BatchFill:
    """Counts what steps dropped and what was leased to make up for it."""

    groups_per_step: int
    group_size: int
    dropped: int = 0
    """Trajectories that steps dropped because they were stale, over the run's lineage."""
    _refilled_groups: int = field(init=False)
    """Groups that were leased beyond ``groups_per_step``.  A resumed run starts even: how many were made up for before
    its checkpoint is not known."""

    def __post_init__(self) -> None:
        self._refilled_groups = self.dropped_groups

    @property
    def groups_to_lease(self) -> int:
        """Number of groups to lease for the next step."""
        return self.groups_per_step + min(self.groups_per_step, self.dropped_groups - self._refilled_groups)

    @property
    def dropped_groups(self) -> int:
        """Number of groups that the dropped trajectories amount to."""
        return self.dropped // self.group_size

    def record_step(self, dropped: int) -> None:
        """Count a step on :attr:`groups_to_lease` groups that dropped this many stale trajectories."""
        self._refilled_groups += self.groups_to_lease - self.groups_per_step
        self.dropped += dropped
