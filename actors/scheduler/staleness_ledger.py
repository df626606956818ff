"""The weights that running and ready groups started from, for the policy ``wait``.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.staleness import find_oldest_running_step
from protocol.trajectory import GroupId


@dataclass(slots=True)
class StalenessLedger:
    """The served step at each group's opening: no token of the group comes from older weights."""

    groups_per_step: int
    _running: dict[GroupId, int] = field(default_factory=dict[GroupId, int])
    _ready: dict[GroupId, int] = field(default_factory=dict[GroupId, int])
    """Ready groups in the order in which they closed, without those that must have been trained by now."""
    _leased: tuple[int, tuple[GroupId, ...]] = (-1, ())
    """The newest lease: the number of steps that the learner has taken, and the groups that it trains next."""

    def add_opened(self, group: GroupId, served_step: int) -> None:
        """Record that ``group`` was opened while the engines served ``served_step``."""
        self._running[group] = served_step

    def add_closed(self, group: GroupId, *, ready: bool) -> None:
        """Record that ``group`` closed; only a ready group will be trained."""
        step = self._running.pop(group, None)
        if ready and step is not None:
            self._ready[group] = step

    def forget_trained(self, ready_groups: int) -> None:
        """Forget the first ready groups if more have closed than the journal's ``ready_groups`` and the lease hold."""
        surplus = len(self._ready) - ready_groups - len(self._leased[1])
        for group in list(self._ready)[: max(0, surplus)]:
            del self._ready[group]

    def oldest_running_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """Return the step that bounds a learner that has taken ``step`` steps and would train ``leased`` next.

        See :func:`protocol.staleness.find_oldest_running_step`.  None if no running group is bound."""
        before, groups = self._leased
        if step > before:
            for group in groups:
                self._ready.pop(group, None)
        self._leased = (step, tuple(leased))
        return find_oldest_running_step(
            running=list(self._running.values()),
            ready=[opened for group, opened in self._ready.items() if group not in leased],
            groups_per_step=self.groups_per_step,
        )
