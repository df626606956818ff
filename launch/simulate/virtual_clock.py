"""A virtual clock: what is due first happens first, and what is due at once happens in the order of asking."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class VirtualClock:
    """Seconds since the simulation began."""

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
        """The event that is happening is the last."""
        self._stopped = True

    def run(self, limit_s: float) -> bool:
        """Go on until :meth:`stop`; false when nothing is due any more, or ``limit_s`` is passed, before it."""
        due = self._due
        while due and not self._stopped:
            self.now, _, action, argument = heappop(due)
            if self.now > limit_s:
                break
            action(argument)
        return self._stopped
