"""How often one kind of news is told: pure, no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Kind:
    left: float
    """So many may be told at once."""
    at: float
    untold: int = 0


class NoticeThrottle:
    """Of each kind ``burst`` at once, and from then on one every ``pause_s``: a peer that is refused again and again
    fills no log.  Kinds are few."""

    def __init__(self, burst: int, pause_s: float) -> None:
        self._burst, self._pause_s = burst, pause_s
        self._kinds: dict[str, _Kind] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """None where it is not to be told; else how many of its kind were not since the last that was."""
        state = self._kinds.setdefault(kind, _Kind(self._burst, now))
        state.left = min(self._burst, state.left + (now - state.at) / self._pause_s)
        state.at = now
        if state.left < 1:
            state.untold += 1
            return None
        state.left -= 1
        untold, state.untold = state.untold, 0
        return untold
