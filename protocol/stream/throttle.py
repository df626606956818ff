"""Rate limit of reports: pure, without clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Kind:
    left: float
    """Number of reports that may be made now."""
    at: float
    unreported: int = 0


class NoticeThrottle:
    """Admits ``burst`` reports of each kind at once, and then one every ``pause_s``, so that a failing peer cannot
    flood a log.  There are few kinds."""

    def __init__(self, burst: int, pause_s: float) -> None:
        self._burst, self._pause_s = burst, pause_s
        self._kinds: dict[str, _Kind] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """Return None to suppress a report, else the number of reports of its kind suppressed since the last one."""
        state = self._kinds.setdefault(kind, _Kind(self._burst, now))
        state.left = min(self._burst, state.left + (now - state.at) / self._pause_s)
        state.at = now
        if state.left < 1:
            state.unreported += 1
            return None
        state.left -= 1
        unreported, state.unreported = state.unreported, 0
        return unreported
