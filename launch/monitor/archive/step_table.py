"""The metrics of every current step in ``metrics.jsonl`` as columns, and the position of each line in the file."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from protocol.run_directory.file_tail import AppendedLines
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, parse_json_object


class LinePosition(NamedTuple):
    """Position of a line in its file, in bytes."""

    offset: int
    length: int


class StepTable:
    """The steps in ascending order; a step that is taken again replaces its first line and all later steps."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.dropped: list[dict[str, int]] = []
        self.columns: dict[str, array[float]] = {}
        self._positions: list[LinePosition] = []
        self.damaged = 0

    def add_lines(self, fresh: AppendedLines) -> None:
        """Add lines that were appended to the file."""
        for raw, end in fresh.lines:
            value = parse_json_object(raw)
            if value is None:
                self.damaged += 1
            elif "rewound_to" in value:
                self._cut(get_integer(value, "rewound_to") + 1)
            elif "step" in value:
                self._add(value, LinePosition(end - len(raw) - 1, len(raw)))

    def find_index(self, step: int) -> int | None:
        """Return the row of a step; None if no such step stands."""
        index = bisect_left(self.numbers, step)
        return index if index < len(self.numbers) and self.numbers[index] == step else None

    def line_position(self, index: int) -> LinePosition:
        """Return where the line of a step lies in ``metrics.jsonl``."""
        return self._positions[index]

    def metric_at(self, index: int, name: str) -> float | None:
        column = self.columns.get(name)
        return None if column is None else finite_or_none(column[index])

    def thinned_indices(self, after: int, points: int) -> Sequence[int]:
        """Return rows of at most ``points`` (0: all) steps after ``after``, evenly spaced, the last step among them."""
        first = bisect_left(self.numbers, after + 1)
        count = len(self.numbers) - first
        stride = max(1, -(-count // points)) if points else 1
        return range(len(self.numbers) - 1, first - 1, -stride)[::-1]

    def _cut(self, step: int) -> None:
        """Remove ``step`` and all later steps."""
        kept = bisect_left(self.numbers, step)
        del self.numbers[kept:], self.dropped[kept:], self._positions[kept:]
        for column in self.columns.values():
            del column[kept:]

    def _add(self, line: Event, position: LinePosition) -> None:
        self._cut(get_integer(line, "step"))
        count = len(self.numbers)
        self.numbers.append(get_integer(line, "step"))
        self._positions.append(position)
        dropped = get_mapping(line, "dropped")
        self.dropped.append({reason: number for reason, number in dropped.items() if isinstance(number, int)})
        for name, value in line.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
                if name not in self.columns:
                    self.columns[name] = array("d", [math.nan] * count)
                self.columns[name].append(float(value))
        for column in self.columns.values():
            if len(column) == count:
                column.append(math.nan)


def finite_or_none(value: float) -> float | None:
    """Return the value; None for NaN and infinities, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
