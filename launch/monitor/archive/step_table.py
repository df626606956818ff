"""Every step that stands, from ``metrics.jsonl``: its numbers as columns, and where its whole line lies."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from protocol.run_directory.file_tail import AppendedLines
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, parse_json_object


class StepTable:
    """Ascending; one that is taken again replaces the first and all after it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.dropped: list[dict[str, int]] = []
        self.columns: dict[str, array[float]] = {}
        self._places: list[tuple[int, int]] = []
        self.damaged = 0

    def add_lines(self, fresh: AppendedLines) -> None:
        """New lines of the file."""
        at = fresh.start
        for raw in fresh.lines:
            start, at = at, at + len(raw) + 1
            value = parse_json_object(raw)
            if value is None:
                self.damaged += 1
            elif "rewound_to" in value:
                self._cut(get_integer(value, "rewound_to") + 1)
            elif "step" in value:
                self._add(value, start, len(raw))

    def find_index(self, step: int) -> int | None:
        """Its index."""
        index = bisect_left(self.numbers, step)
        return index if index < len(self.numbers) and self.numbers[index] == step else None

    def line_position(self, index: int) -> tuple[int, int]:
        """Offset and length of its line."""
        return self._places[index]

    def metric_at(self, index: int, name: str) -> float | None:
        column = self.columns.get(name)
        return None if column is None else finite_or_none(column[index])

    def thinned_indices(self, after: int, points: int) -> Sequence[int]:
        """Indices of the steps after ``after``, evenly, at most ``points`` (0: all), the last among them."""
        first = bisect_left(self.numbers, after + 1)
        count = len(self.numbers) - first
        stride = max(1, -(-count // points)) if points else 1
        return range(len(self.numbers) - 1, first - 1, -stride)[::-1]

    def _cut(self, step: int) -> None:
        """Forget ``step`` and later ones."""
        kept = bisect_left(self.numbers, step)
        del self.numbers[kept:], self.dropped[kept:], self._places[kept:]
        for column in self.columns.values():
            del column[kept:]

    def _add(self, line: Event, start: int, length: int) -> None:
        self._cut(get_integer(line, "step"))
        count = len(self.numbers)
        self.numbers.append(get_integer(line, "step"))
        self._places.append((start, length))
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
    """None for what JSON does not have."""
    return float(value) if math.isfinite(value) else None
