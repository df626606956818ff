"""A mean that forgets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunningMean:
    """Of the first ``memory`` values their mean; after that each new one has a weight of 1 ÷ ``memory``."""

    memory: int
    count: int = 0
    value: float = 0.0
    """0 before the first."""

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / min(self.count, self.memory)
