"""The newest lags of a run's event loops, from its events."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.processes.loop_lag import LoopLag
from protocol.run_directory.json_fields import Event, get_number, get_text

_RECENT_S = 90.0
"""Age, compared with the newest report of any process, after which a process's last one is forgotten."""


class RecentLoopLags:
    """The last lag that each process reported, without those of processes that are gone."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[float, LoopLag]] = {}

    def observe_report(self, event: Event) -> None:
        """Add an event ``loop.measured``."""
        now = get_number(event, "t") or 0.0
        lag = LoopLag(get_number(event, "max_ms") or 0.0, get_number(event, "p99_ms") or 0.0)
        self._reports[get_text(event, "writer")] = now, lag
        self._reports = {name: report for name, report in self._reports.items() if report[0] > now - _RECENT_S}

    def by_process(self) -> Mapping[str, LoopLag]:
        """Return the lags of the processes that still report."""
        return {name: lag for name, (_, lag) in self._reports.items()}
