"""Which incarnation of each worker is the current one, so that no request goes to a process that is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

_REMOVED = ""
"""The incarnation of a worker that is gone for good."""


@dataclass(slots=True)
class WorkerRegistry:
    """Worker name → the incarnation that registered last."""

    _current: dict[str, str] = field(default_factory=dict[str, str])

    def register(self, worker: str, incarnation: str) -> str:
        """Make ``incarnation`` the current one, and return its name among request holders, ``NAME#INCARNATION``."""
        self._current[worker] = incarnation
        return f"{worker}#{incarnation}"

    def remove(self, worker: str) -> None:
        """Forget a worker that does not come back."""
        self._current[worker] = _REMOVED

    def is_current(self, worker: str, incarnation: str) -> bool:
        """Whether ``incarnation`` may have requests; the first one that is heard of may."""
        return self._current.setdefault(worker, incarnation) == incarnation
