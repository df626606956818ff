"""What a person should hear while the run goes on.  Pure: news in, a sentence out."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.groups import GroupOutcome
from protocol.journal import GroupClosed


@dataclass(slots=True)
class ZeroVarianceWatch:
    """Speaks up when group after group has nothing to train on: such a run replaces groups for ever."""

    limit: int
    """Groups in a row before the first word; twice as many before the next."""
    _total: float = 0.0
    _rewards: int = 0
    _groups: int = 0

    def take(self, closing: GroupClosed) -> str | None:
        """The advisory that ``closing`` calls for, if any."""
        if closing.outcome is not GroupOutcome.ZERO_VARIANCE:
            self._total, self._rewards, self._groups = 0.0, 0, 0
            return None
        self._total += sum(closing.rewards.values())
        self._rewards += len(closing.rewards)
        self._groups += 1
        if self._groups < self.limit:
            return None
        self.limit *= 2
        mean = self._total / self._rewards
        return (
            f"the last {self._groups} groups gave nothing to train on: no reward in them differs (mean {mean:.2f}). "
            "Choose easier or harder tasks under [data], or raise rollout.group_size; stop.after_s bounds the wait"
        )
