"""Infrastructure failure rates of attempts by their running time.  Pure.

If long attempts fail more often than short ones, long and hard tasks are trained less: each replacement has to survive
the same time, and a sample whose replacements all fail is abandoned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.events import EmitEvent

_DECILES = 10
_REPORTED_ATTEMPTS = 500
"""Number of attempts in one report: fifty in each decile."""
_ALERT_RATE, _ALERT_RATIO = 0.1, 2.0
"""An alert needs this failure rate in the slowest decile, and this multiple of the overall rate."""


@dataclass(frozen=True, slots=True)
class FailureRateReport:
    """Failure rates of ``attempts`` attempts."""

    attempts: int
    failed: int
    by_decile: tuple[float, ...]
    """Share of failed attempts in each decile of running time, shortest first."""

    @property
    def alert(self) -> str | None:
        """Alert message if the slowest decile fails far more often than all attempts, else None."""
        slowest, overall = self.by_decile[-1], self.failed / self.attempts
        if slowest < _ALERT_RATE or slowest < _ALERT_RATIO * overall:
            return None
        return (
            f"infrastructure failed {slowest:.0%} of the slowest tenth of {self.attempts} attempts, but {overall:.0%} "
            "of all, so long episodes are trained less. The episode.failed events have the reasons; if they are "
            "deadlines, raise rollout.episode_deadline_s"
        )


@dataclass(slots=True)
class FailureRateTracker:
    """Collects finished attempts until :meth:`pop_report`."""

    _ended: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])

    def add_attempt(self, seconds: float, *, failed: bool) -> None:
        """Record an attempt that ended ``seconds`` after it was assigned."""
        self._ended.append((seconds, failed))

    def __len__(self) -> int:
        return len(self._ended)

    def pop_report(self) -> FailureRateReport | None:
        """Return a report on the attempts since the last report; None, and they are kept, if there are fewer than
        ten."""
        count = len(self._ended)
        if count < _DECILES:
            return None
        failed = [failed for _, failed in sorted(self._ended)]
        self._ended.clear()
        deciles = [failed[count * n // _DECILES : count * (n + 1) // _DECILES] for n in range(_DECILES)]
        rates = tuple(round(sum(decile) / len(decile), 4) for decile in deciles)
        return FailureRateReport(count, sum(failed), rates)


@dataclass(slots=True)
class FailureRateMonitor:
    """Emits a report every 500 attempts, and an alert with each report that calls for one."""

    emit: EmitEvent
    _tracker: FailureRateTracker = field(default_factory=FailureRateTracker)
    _alerted: bool = False

    def add_attempt(self, seconds: float, *, failed: bool) -> None:
        """Record an attempt that ended ``seconds`` after it was assigned."""
        self._tracker.add_attempt(seconds, failed=failed)
        if len(self._tracker) >= _REPORTED_ATTEMPTS:
            self.emit_report()

    def emit_report(self) -> None:
        """Emit the rates since the last report, if there are enough attempts."""
        if (rates := self._tracker.pop_report()) is None:
            return
        self.emit("infra.failure_rates", attempts=rates.attempts, failed=rates.failed, by_decile=list(rates.by_decile))
        if (text := rates.alert) is not None:
            self.emit("alert.raised", name="infra_rates", text=text)
        elif self._alerted:
            self.emit("alert.resolved", name="infra_rates")
        self._alerted = text is not None
