"""A running mean that forgets old values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunningMean:
    """The mean of the first ``memory`` values; from then on each new value has the weight 1 ÷ ``memory``."""

    memory: int
    count: int = 0
    value: float = 0.0
    """The mean; 0 before the first value."""

    def add(self, value: float) -> None:
        """Add ``value`` to the mean."""
        self.count += 1
        self.value += (value - self.value) / min(self.count, self.memory)
