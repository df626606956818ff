"""How many groups a step leases, so that it is full of what can be trained.  Pure.

A trajectory of which every token is above η is dropped by the step that leased it: mostly a short one that waited for a
slow member of its group.  Its place in the batch would be lost, so the next steps lease as many groups more as the last
ones lost places; admission hears of the sum, and opens as many more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.running_mean import RunningMean

_MEMORY_STEPS = 8


@dataclass(slots=True)
class BatchFill:
    groups_per_step: int
    group_size: int
    lost: int = 0
    """Trajectories that steps dropped for their age, over the run's lineage."""
    _recent: RunningMean = field(default_factory=lambda: RunningMean(_MEMORY_STEPS))

    @property
    def groups(self) -> int:
        """To be leased for the next step."""
        return self.groups_per_step + int(self._recent.value / self.group_size)

    @property
    def lost_groups(self) -> int:
        """Groups' worth of lost places: they fill no step."""
        return self.lost // self.group_size

    def stepped(self, lost: int) -> None:
        """A step was taken, and ``lost`` trajectories of its batch were dropped for their age."""
        self.lost += lost
        self._recent.add(lost)
