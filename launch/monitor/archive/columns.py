"""What every trajectory came to, as columns: a hundred thousand take ten megabytes.

Rows are only appended, in the order of arrival; their later columns are filled when a step has used them.  Strings that
repeat (tasks, statuses, reasons, segments) are numbers into a list of names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.export import ExportEntry
from protocol.trained import TrainedEntry
from protocol.trajectory import trajectory_id

Array: TypeAlias = npt.NDArray[Any]

HELD, TRAINED, DROPPED = 0, 1, 2
"""Values of the column ``state``."""
UNKNOWN = -1
"""In columns of whole numbers; in others it is NaN."""
_SAMPLE_BITS = 20
_DTYPES: Mapping[str, npt.DTypeLike] = {
    **dict.fromkeys(("group", "offset", "facts_offset"), np.int64),
    **dict.fromkeys(("sample", "task", "status", "reason", "length", "tokens", "sampled", "step"), np.int32),
    **dict.fromkeys(("segment", "facts_segment", "facts_length", "attempt"), np.int32),
    **dict.fromkeys(("state", "passed"), np.int8),
    **dict.fromkeys(("reward", "at"), np.float64),
    **dict.fromkeys(("advantage", "gap"), np.float32),
    "version": np.int32,
}


class Names:
    """Strings as numbers, in the order in which they came."""

    def __init__(self, first: Sequence[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(first)}
        self.all = list(first)

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.all)
            self.all.append(name)
        return found

    def known(self, names: Sequence[str]) -> list[int]:
        """Numbers of those that ever came."""
        return [self._numbers[name] for name in names if name in self._numbers]


def key_of(group: int, sample: int) -> int:
    """One number for a sample of a group."""
    return group << _SAMPLE_BITS | sample


def key_of_name(trajectory: str) -> int | None:
    """The key of a :func:`protocol.trajectory.trajectory_id`; None for another name."""
    head, _, sample = trajectory.rpartition("-s")
    group = head.rpartition("-g")[2]
    if not (group.isascii() and group.isdigit() and sample.isascii() and sample.isdigit()):
        return None
    key = key_of(int(group), int(sample))
    return key if trajectory_id(int(group), int(sample)) == trajectory else None


def _within(values: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """As the column's type: a damaged line may have any number."""
    if dtype.kind == "f":
        return np.array(values, dtype)
    bounds = np.iinfo(dtype)
    return np.array(values, np.int64).clip(bounds.min, bounds.max).astype(dtype)


class Rows:
    """See the module.  Not thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: dict[str, Array] = {name: np.zeros(1024, dtype) for name, dtype in _DTYPES.items()}
        self._by_key: dict[int, int] = {}
        self.tasks, self.statuses, self.reasons = Names(), Names(), Names([""])
        self.segments, self.facts_segments = Names(), Names([""])

    def __getitem__(self, column: str) -> Array:
        """A column as it is now; valid until rows are added."""
        return self._columns[column][: self.count]

    def whole(self, column: str, row: int) -> int:
        """One value of a column of whole numbers."""
        return int(self._columns[column][row])

    def real(self, column: str, row: int) -> float:
        return float(self._columns[column][row])

    def task(self, row: int) -> str:
        return self.tasks.all[self.whole("task", row)]

    def status(self, row: int) -> str:
        return self.statuses.all[self.whole("status", row)]

    def reason(self, row: int) -> str:
        """Why it was dropped; empty where it was not."""
        return self.reasons.all[self.whole("reason", row)]

    def entry(self, row: int) -> ExportEntry:
        """Where its record is, as the index has it."""
        group, sample = self.whole("group", row), self.whole("sample", row)
        return ExportEntry(
            trajectory_id(group, sample),
            group,
            sample,
            self.task(row),
            self.segments.all[self.whole("segment", row)],
            self.whole("offset", row),
            self.whole("length", row),
            self.status(row),
            self.real("reward", row),
        )

    def used(self, row: int) -> TrainedEntry:
        """Where the facts of its tokens are."""
        return TrainedEntry(
            trajectory_id(self.whole("group", row), self.whole("sample", row)),
            segment=self.facts_segments.all[self.whole("facts_segment", row)],
            offset=self.whole("facts_offset", row),
            length=self.whole("facts_length", row),
        )

    def find(self, key: int | None) -> int | None:
        """The row of a sample."""
        return None if key is None else self._by_key.get(key)

    def add(self, entries: Sequence[ExportEntry]) -> list[int]:
        """Append trajectories; one whose sample is there already (exported twice) is passed over.  The keys of those
        that were added."""
        keys: list[int] = []
        fresh: list[ExportEntry] = []
        for entry in entries:
            key = key_of(entry.group, entry.sample)
            if key not in self._by_key and 0 <= entry.sample < 1 << _SAMPLE_BITS and 0 <= entry.group < 1 << 40:
                self._by_key[key] = self.count + len(fresh)
                keys.append(key)
                fresh.append(entry)
        if fresh:
            self._append(fresh)
        return keys

    def _append(self, fresh: Sequence[ExportEntry]) -> None:
        first, self.count = self.count, self.count + len(fresh)
        self._make_room()
        values: dict[str, Sequence[float]] = {
            "group": [entry.group for entry in fresh],
            "sample": [entry.sample for entry in fresh],
            "task": [self.tasks.number(entry.task) for entry in fresh],
            "segment": [self.segments.number(entry.segment) for entry in fresh],
            "offset": [entry.offset for entry in fresh],
            "length": [entry.length for entry in fresh],
            "status": [self.statuses.number(entry.status) for entry in fresh],
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
        """No step has used these."""
        for name, value in {"state": HELD, "reason": 0, "step": UNKNOWN, "version": UNKNOWN}.items():
            self._columns[name][which] = value
        for name in ("advantage", "gap"):
            self._columns[name][which] = np.nan
        for name in ("facts_segment", "facts_offset", "facts_length"):
            self._columns[name][which] = 0

    def use(self, row: int, entry: TrainedEntry, step: int | None, version: int) -> None:
        """A step used it; None: a batch that made none."""
        columns = self._columns
        columns["state"][row] = DROPPED if entry.reason else TRAINED
        columns["reason"][row] = self.reasons.number(entry.reason)
        columns["step"][row] = UNKNOWN if step is None else step
        columns["version"][row] = version
        columns["advantage"][row] = np.nan if entry.advantage is None else entry.advantage
        columns["gap"][row] = np.nan if entry.gap is None else entry.gap
        columns["facts_segment"][row] = self.facts_segments.number(entry.segment)
        columns["facts_offset"][row] = entry.offset
        columns["facts_length"][row] = entry.length

    def drop(self, rows: Sequence[int], reason: str) -> None:
        """Their group closed without anything to train."""
        self._columns["state"][list(rows)] = DROPPED
        self._columns["reason"][list(rows)] = self.reasons.number(reason)

    def rewind(self, step: int) -> None:
        """What later steps did was taken back."""
        self._reset(np.flatnonzero(self["step"] > step))
