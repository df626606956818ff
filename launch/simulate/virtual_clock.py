"""A virtual clock that runs scheduled actions in order of time, and of scheduling at the same time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class VirtualClock:
    """Runs actions at their time, in seconds since the start of the simulation."""

    __slots__ = ("_due", "_seq", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action, Any]] = []
        self._seq, self._stopped = 0, False

    def schedule(self, seconds: float, action: Action, argument: Any = None) -> None:
        """Call ``action(argument)`` ``seconds`` from now."""
        self._seq += 1
        heappush(self._due, (self.now + seconds, self._seq, action, argument))

    def stop(self) -> None:
        """Stop after the current action."""
        self._stopped = True

    def run(self, limit_s: float) -> bool:
        """Run until :meth:`stop`; return false if there are no more actions, or ``limit_s`` has passed, before it."""
        due = self._due
        while due and not self._stopped:
            self.now, _, action, argument = heappop(due)
            if self.now > limit_s:
                break
            action(argument)
        return self._stopped
