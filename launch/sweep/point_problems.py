"""What is wrong with points, each reason once: one value of an axis is wrong at many of them."""

from __future__ import annotations

from launch.config import ConfigError
from launch.sweep.axes import SweepPoint

_ALSO = "; also: "
"""Between two reasons of one refusal."""


class PointProblems:
    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        """Reason → the first point that has it."""

    def add(self, point: SweepPoint, why: str) -> None:
        for each in why.split(_ALSO):
            self._first.setdefault(each, point.name)

    def raise_if_any(self) -> None:
        """Raises ConfigError, if there is anything."""
        if self._first:
            raise ConfigError(_ALSO.join(f"point {name}: {why}" for why, name in self._first.items()))
