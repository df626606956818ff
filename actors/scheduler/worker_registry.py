"""The current incarnation of each worker, so that no request goes to a process that is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

_REMOVED = ""
"""The incarnation of a worker that is gone for good."""


@dataclass(slots=True)
class WorkerRegistry:
    """Maps each worker's name to the incarnation that registered last."""

    _current: dict[str, str] = field(default_factory=dict[str, str])

    def register(self, worker: str, incarnation: str) -> str:
        """Make ``incarnation`` the current one and return ``NAME#INCARNATION``, under which requests are assigned."""
        self._current[worker] = incarnation
        return f"{worker}#{incarnation}"

    def remove(self, worker: str) -> None:
        """Refuse all further incarnations of a worker that is gone for good."""
        self._current[worker] = _REMOVED

    def is_current(self, worker: str, incarnation: str) -> bool:
        """Return whether ``incarnation`` may have requests; the first one of an unregistered worker may."""
        return self._current.setdefault(worker, incarnation) == incarnation
