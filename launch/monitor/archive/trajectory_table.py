"""The table of all trajectories as columns; 100,000 rows take ten megabytes.

Rows are appended in the order of arrival; some columns are filled when a step has used the trajectory.  Repeated
strings (tasks, statuses, reasons, file names) are stored as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.run_directory.trained_log import TrainedTrajectoryEntry
from protocol.run_directory.trajectory_export import ExportIndexEntry
from protocol.trajectory import make_trajectory_id

Array: TypeAlias = npt.NDArray[Any]

BUFFERED, TRAINED, DROPPED = 0, 1, 2
"""Values of the column ``state``."""
UNKNOWN = -1
"""Missing value of integer columns; float columns use NaN."""
_MAX_GROUP = 1 << 40
"""Limit of group numbers; a damaged line may have any number."""
_DTYPES: Mapping[str, npt.DTypeLike] = {
    **dict.fromkeys(("group", "offset", "facts_offset"), np.int64),
    **dict.fromkeys(("sample", "task", "status", "reason", "length", "tokens", "sampled", "step"), np.int32),
    **dict.fromkeys(("segment", "facts_segment", "facts_length", "attempt"), np.int32),
    **dict.fromkeys(("state", "passed"), np.int8),
    **dict.fromkeys(("reward", "at"), np.float64),
    **dict.fromkeys(("advantage", "logprob_gap"), np.float32),
    "version": np.int32,
}


class TrajectoryUse(NamedTuple):
    """The use of a trajectory by a step."""

    entry: TrainedTrajectoryEntry
    step: int | None
    """None for a batch that made no step."""
    version: int
    """Version of the weights that the step updated."""


class StringTable:
    """Numbers strings in the order in which they first appear."""

    def __init__(self, first: Sequence[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(first)}
        self.strings = list(first)

    def intern(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.strings)
            self.strings.append(name)
        return found

    def find_numbers(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the known names."""
        return [self._numbers[name] for name in names if name in self._numbers]


def _within(values: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Convert values to the column's type: a damaged line may have any number."""
    if dtype.kind == "f":
        return np.array(values, dtype)
    bounds = np.iinfo(dtype)
    return np.array(values, np.int64).clip(bounds.min, bounds.max).astype(dtype)


class TrajectoryTable:
    """The columns and their rows.  Not thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: dict[str, Array] = {name: np.zeros(1024, dtype) for name, dtype in _DTYPES.items()}
        self._by_name: dict[str, int] = {}
        self.texts = {name: StringTable([""]) for name in ("task", "status", "reason", "segment", "facts_segment")}
        """Column of numbers → their strings; 0 is the empty string."""

    def __getitem__(self, column: str) -> Array:
        """Return a column, which is valid until rows are added."""
        return self._columns[column][: self.count]

    def integer_at(self, column: str, row: int) -> int:
        """Return one value of an integer column."""
        return int(self._columns[column][row])

    def float_at(self, column: str, row: int) -> float:
        return float(self._columns[column][row])

    def text_at(self, column: str, row: int) -> str:
        """Return one value of a column of strings; a ``reason`` is empty if the trajectory was not dropped."""
        return self.texts[column].strings[self.integer_at(column, row)]

    def export_entry(self, row: int) -> ExportIndexEntry:
        """Return the index entry that locates the trajectory's record."""
        group, sample = self.integer_at("group", row), self.integer_at("sample", row)
        return ExportIndexEntry(
            make_trajectory_id(group, sample),
            group,
            sample,
            self.text_at("task", row),
            self.text_at("segment", row),
            self.integer_at("offset", row),
            self.integer_at("length", row),
            self.text_at("status", row),
            self.float_at("reward", row),
        )

    def trained_entry(self, row: int) -> TrainedTrajectoryEntry:
        """Return the entry that locates the facts of the trajectory's tokens."""
        return TrainedTrajectoryEntry(
            make_trajectory_id(self.integer_at("group", row), self.integer_at("sample", row)),
            file=self.text_at("facts_segment", row),
            offset=self.integer_at("facts_offset", row),
            length=self.integer_at("facts_length", row),
        )

    def find_row(self, trajectory: str) -> int | None:
        """Return the row of a trajectory; None if it is not listed."""
        return self._by_name.get(trajectory)

    def append_entries(self, entries: Sequence[ExportIndexEntry]) -> None:
        """Append trajectories; one that was exported twice is added once."""
        fresh: list[ExportIndexEntry] = []
        for entry in entries:
            if entry.trajectory not in self._by_name and 0 <= entry.group < _MAX_GROUP:
                self._by_name[entry.trajectory] = self.count + len(fresh)
                fresh.append(entry)
        if fresh:
            self._append(fresh)

    def _append(self, fresh: Sequence[ExportIndexEntry]) -> None:
        first, self.count = self.count, self.count + len(fresh)
        self._make_room()
        values: dict[str, Sequence[float]] = {
            "group": [entry.group for entry in fresh],
            "sample": [entry.sample for entry in fresh],
            "task": [self.texts["task"].intern(entry.task) for entry in fresh],
            "segment": [self.texts["segment"].intern(entry.file) for entry in fresh],
            "offset": [entry.offset for entry in fresh],
            "length": [entry.length for entry in fresh],
            "status": [self.texts["status"].intern(entry.status) for entry in fresh],
            "reward": [entry.reward for entry in fresh],
            "attempt": [entry.attempt for entry in fresh],
            "passed": [UNKNOWN if entry.passed is None else entry.passed for entry in fresh],
            "tokens": [entry.tokens for entry in fresh],
            "sampled": [entry.sampled for entry in fresh],
            "at": [np.nan if entry.at is None else entry.at for entry in fresh],
        }
        for name, column in values.items():
            self._columns[name][first : self.count] = _within(column, self._columns[name].dtype)
        self._reset(slice(first, self.count))

    def _make_room(self) -> None:
        if self.count > len(self._columns["group"]):
            size = max(self.count, 2 * len(self._columns["group"]))
            for name, column in self._columns.items():
                larger = np.zeros(size, column.dtype)
                larger[: len(column)] = column
                self._columns[name] = larger

    def _reset(self, which: slice | Array) -> None:
        """Mark rows as not used by a step."""
        for name, value in {"state": BUFFERED, "reason": 0, "step": UNKNOWN, "version": UNKNOWN}.items():
            self._columns[name][which] = value
        for name in ("advantage", "logprob_gap"):
            self._columns[name][which] = np.nan
        for name in ("facts_segment", "facts_offset", "facts_length"):
            self._columns[name][which] = 0

    def mark_used(self, rows: Sequence[int], uses: Sequence[TrajectoryUse]) -> None:
        """Record how steps used these rows."""
        entries = [use.entry for use in uses]
        values: Mapping[str, Sequence[float]] = {
            "state": [DROPPED if entry.reason else TRAINED for entry in entries],
            "reason": [self.texts["reason"].intern(entry.reason) for entry in entries],
            "advantage": [np.nan if entry.advantage is None else entry.advantage for entry in entries],
            "logprob_gap": [np.nan if entry.logprob_gap is None else entry.logprob_gap for entry in entries],
            "facts_segment": [self.texts["facts_segment"].intern(entry.file) for entry in entries],
            "facts_offset": [entry.offset for entry in entries],
            "facts_length": [entry.length for entry in entries],
            "step": [UNKNOWN if use.step is None else use.step for use in uses],
            "version": [use.version for use in uses],
        }
        for name, column in values.items():
            self._columns[name][list(rows)] = _within(column, self._columns[name].dtype)

    def mark_dropped(self, rows: Sequence[int], reason: str) -> None:
        """Mark rows whose group closed without anything to train."""
        self._columns["state"][list(rows)] = DROPPED
        self._columns["reason"][list(rows)] = self.texts["reason"].intern(reason)

    def rewind_to(self, step: int) -> None:
        """Take back the uses of later steps."""
        self._reset(np.flatnonzero(self["step"] > step))
