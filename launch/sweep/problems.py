"""What is wrong with points, each reason once: one value of an axis is wrong at many of them."""

from __future__ import annotations

from launch.config import ConfigError
from launch.sweep.axes import Point

_ALSO = "; also: "
"""Between two reasons of one refusal."""


class Problems:
    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        """Reason → the first point that has it."""

    def add(self, point: Point, why: str) -> None:
        for each in why.split(_ALSO):
            self._first.setdefault(each, point.name)

    def done(self) -> None:
        """Raises ConfigError, if there is anything."""
        if self._first:
            raise ConfigError(_ALSO.join(f"point {name}: {why}" for why, name in self._first.items()))
