"""How often infrastructure fails attempts, by how long they had been out.  Pure.

Failures that hit long attempts more than short ones thin out what is long and hard: each of its replacements has to
come through the same time, and a sample that never does is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_TENTHS = 10
_NOTABLE, _TIMES_ALL = 0.1, 2.0
"""The slowest tenth is worth a word where so much of it fails, and so many times as much as of all."""


@dataclass(frozen=True, slots=True)
class FailureRateReport:
    """Of a number of attempts."""

    attempts: int
    failed: int
    by_decile: tuple[float, ...]
    """Share that failed of each tenth by seconds out, shortest first."""

    @property
    def alert(self) -> str | None:
        """What a person should hear: that the slowest tenth loses far more than all do."""
        slowest, overall = self.by_decile[-1], self.failed / self.attempts
        if slowest < _NOTABLE or slowest < _TIMES_ALL * overall:
            return None
        return (
            f"infrastructure failed {slowest:.0%} of the slowest tenth of {self.attempts} attempts, and {overall:.0%} "
            "of all: long episodes are trained less. The episode.failed events have the reasons; for deadline, raise "
            "rollout.episode_deadline_s"
        )


@dataclass(slots=True)
class FailureRateTracker:
    """Collects attempts that have ended until :meth:`take`."""

    _ended: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])

    def add_attempt(self, seconds: float, *, failed: bool) -> None:
        """An attempt ended ``seconds`` after it was handed out."""
        self._ended.append((seconds, failed))

    def __len__(self) -> int:
        return len(self._ended)

    def pop_report(self) -> FailureRateReport | None:
        """The rates of what was added since the last time; None for fewer than one attempt a tenth, which stay."""
        count = len(self._ended)
        if count < _TENTHS:
            return None
        failed = [failed for _, failed in sorted(self._ended)]
        self._ended.clear()
        tenths = [failed[count * n // _TENTHS : count * (n + 1) // _TENTHS] for n in range(_TENTHS)]
        return FailureRateReport(count, sum(failed), tuple(round(sum(tenth) / len(tenth), 4) for tenth in tenths))
