"""How many groups a step leases, so that a run trains as much as it was asked to.  Pure.

A trajectory of which every token is above η is dropped by the step that leased it: mostly a short one that waited for a
slow member of its group.  Its place in the batch would be lost, so the next step leases as many groups more as fill the
places that were, at most twice the batch at once (the journal's budget holds as much).  Admission hears of the same
sum and opens as many more: what steps lease is never more than what is opened for them, or the last step would wait for
ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class BatchFill:
    groups_per_step: int
    group_size: int
    dropped: int = 0
    """Trajectories that steps dropped for their age, over the run's lineage."""
    _refilled_groups: int = field(init=False)
    """Groups that were leased beyond ``groups_per_step``.  A resumed run owes nothing: what was made up before its
    checkpoint is not known."""

    def __post_init__(self) -> None:
        self._refilled_groups = self.dropped_groups

    @property
    def groups_to_lease(self) -> int:
        """To be leased for the next step."""
        return self.groups_per_step + min(self.groups_per_step, self.dropped_groups - self._refilled_groups)

    @property
    def dropped_groups(self) -> int:
        """Groups' worth of lost places: they fill no step."""
        return self.dropped // self.group_size

    def record_step(self, dropped: int) -> None:
        """A step was taken on :attr:`groups` groups, and ``lost`` trajectories of them were dropped for their age."""
        self._refilled_groups += self.groups_to_lease - self.groups_per_step
        self.dropped += dropped
