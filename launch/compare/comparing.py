"""A comparison: evaluations of the same tasks, each held against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.compare.paired import Paired, paired
from launch.compare.rules import notices, require_comparable
from launch.compare.sides import Side


@dataclass(frozen=True, slots=True)
class Against:
    """One evaluation and the first."""

    side: Side
    paired: Paired
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    first: Side
    others: tuple[Against, ...]
    notices: tuple[str, ...]
    """Of all."""

    @property
    def sides(self) -> list[Side]:
        return [self.first, *(each.side for each in self.others)]


def compare(sides: Sequence[Side], *, anyway: bool = False, seed: int = 0) -> Comparison:
    """Raises UserError where they cannot be compared."""
    said = require_comparable(sides, anyway=anyway)
    first, *rest = sides
    others: list[Against] = []
    for side in rest:
        both = paired(first.tallies, side.tallies, seed)
        others.append(Against(side, both, tuple(notices(first, side, both))))
    return Comparison(first, tuple(others), tuple(said))
