"""What every trajectory, group and step of one run came to, followed by offset in four files.

``trajectories/index.jsonl`` says what there is, ``trained/index.jsonl`` what a step made of it, ``events/buffer.jsonl``
how groups opened and closed, ``metrics.jsonl`` the steps' numbers.  Files are written by several processes: what one of
them says of a trajectory that another has not told of yet waits for it.  Where one was replaced or cut, all of it
begins anew.  Not thread-safe: :class:`launch.monitor.follow.Follower` owns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from launch.monitor.archive.columns import Rows, key_of, key_of_name
from launch.monitor.archive.lines import Fresh, LineFile
from launch.monitor.archive.steps import Steps
from launch.monitor.tail import Event, integer, number, parse_object, text
from protocol.export import FOLDER, INDEX, ExportEntry
from protocol.groups import DROP_REASONS, GroupOutcome
from protocol.trained import FOLDER as TRAINED_FOLDER
from protocol.trained import RewoundTo, TrainedEntry, TrainedStep, read_line

_CHUNK_BYTES = 4 << 20
_GROUP_EVENT = b'"kind":"group.'
_DROPS = {str(outcome): str(reason) for outcome, reason in DROP_REASONS.items()}
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError)
_ENTRY = msgspec.json.Decoder(ExportEntry)


@dataclass(slots=True)
class GroupFacts:
    """What the buffer's events say of a group."""

    task: str = ""
    size: int = 0
    outcome: str = GroupOutcome.OPEN.value
    opened_at: float | None = None
    closed_at: float | None = None


class _Used(NamedTuple):
    entry: TrainedEntry
    step: int | None
    version: int


class _LedgerLine(msgspec.Struct):
    step: int
    version: int
    trained: list[str]
    dropped: dict[str, str]


class Catalog:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._begin()
        self.revision = 0
        """Changes with every answer."""

    def _begin(self) -> None:
        self.rows, self.steps = Rows(), Steps()
        self.groups: dict[int, GroupFacts] = {}
        self.versions: dict[int, int] = {}
        """Step → version of the weights that it updated."""
        self.ended = False
        """The run is over, and what is left in its buffer is dropped."""
        self.damaged = 0
        """Lines that were left out."""
        self._early: dict[int, _Used] = {}
        """Of trajectories that are not in the index yet."""
        self._index = LineFile(self.run_dir / FOLDER / INDEX)
        self._trained = LineFile(self.run_dir / TRAINED_FOLDER / INDEX)
        self._buffer = LineFile(self.run_dir / "events" / "buffer.jsonl")
        self._metrics = LineFile(self.run_dir / "metrics.jsonl")
        self._files = (self._index, self._trained, self._buffer, self._metrics)
        self._ledger_read = False

    @property
    def behind(self) -> int:
        """Bytes that are not taken in."""
        return sum(file.behind for file in self._files)

    def poll(self) -> bool:
        """Take in what was appended, some megabytes at most; whether there may be more."""
        found = [file.read(_CHUNK_BYTES) for file in self._files]
        if any(fresh.replaced for fresh in found):
            self._begin()
            self.revision += 1
            return True
        index, trained, buffer, metrics = found
        self._add(index)
        self._read_ledger()
        self._use(trained)
        self._group(buffer)
        self.steps.take(metrics)
        if more := any(fresh.lines for fresh in found):
            self.revision += 1
        return more

    def set_ended(self, ended: bool) -> None:
        """Whether the run has come to its end."""
        if ended != self.ended:
            self.ended = ended
            self.revision += 1

    def _add(self, fresh: Fresh) -> None:
        entries: list[ExportEntry] = []
        for raw in fresh.lines:
            try:
                entries.append(_ENTRY.decode(raw))
            except _DAMAGE:
                self.damaged += 1
        for key in self.rows.add(entries):
            if (used := self._early.pop(key, None)) is not None:
                self.rows.use(self._row(key), *used)
        for entry in entries:
            facts = self.groups.get(entry.group)
            if facts is not None and facts.outcome in _DROPS:
                self._drop(entry.group, _DROPS[facts.outcome])

    def _row(self, key: int) -> int:
        row = self.rows.find(key)
        assert row is not None  # noqa: S101  # it was added
        return row

    def _use(self, fresh: Fresh) -> None:
        for raw in fresh.lines:
            match read_line(raw):
                case TrainedStep() as step:
                    self._use_step(step)
                case RewoundTo(rewound_to=kept):
                    self.rows.rewind(kept)
                    self._early = {key: used for key, used in self._early.items() if (used.step or 0) <= kept}
                    self.versions = {step: version for step, version in self.versions.items() if step <= kept}
                case None:
                    self.damaged += 1

    def _use_step(self, line: TrainedStep) -> None:
        if line.step is not None:
            self.versions[line.step] = line.version
        for entry in line.trajectories:
            if (key := key_of_name(entry.trajectory)) is None:
                continue
            if (row := self.rows.find(key)) is not None:
                self.rows.use(row, entry, line.step, line.version)
            else:
                self._early[key] = _Used(entry, line.step, line.version)

    def _read_ledger(self) -> None:
        """Of a run that keeps no ``trained/``, what its newest checkpoint says, once."""
        if self._ledger_read or self._trained.path.exists():
            return
        self._ledger_read = True
        for line in _ledger(self.run_dir):
            entries = chain(
                map(TrainedEntry, line.trained), (TrainedEntry(name, reason) for name, reason in line.dropped.items())
            )
            self._use_step(TrainedStep(line.step, 0.0, line.version, list(entries)))

    def _group(self, fresh: Fresh) -> None:
        for raw in fresh.lines:
            if _GROUP_EVENT in raw and (event := parse_object(raw)) is not None:
                self._take_group(event)

    def _take_group(self, event: Event) -> None:
        group = integer(event, "group", -1)
        facts = self.groups.setdefault(group, GroupFacts())
        facts.task, facts.size = text(event, "task", facts.task), max(facts.size, integer(event, "size"))
        if text(event, "kind") == "group.opened":
            facts.opened_at = number(event, "t")
            return
        facts.closed_at, facts.outcome = number(event, "t"), text(event, "outcome", facts.outcome)
        if (reason := _DROPS.get(facts.outcome)) is not None:
            self._drop(group, reason)

    def _drop(self, group: int, reason: str) -> None:
        size = self.groups[group].size
        rows = (self.rows.find(key_of(group, sample)) for sample in range(min(size, 1 << 16)))
        if known := [row for row in rows if row is not None]:
            self.rows.drop(known, reason)

    def members(self, group: int) -> list[int]:
        """Rows of a group, by sample."""
        rows = np.flatnonzero(self.rows["group"] == group)
        return sorted(rows.tolist(), key=lambda row: int(self.rows["sample"][row]))


def _ledger(run_dir: Path) -> Iterator[_LedgerLine]:
    """Lines of the newest checkpoint's ledger that can be read."""
    for path in sorted((run_dir / "checkpoints").glob("step-*[0-9]/ledger.jsonl"), reverse=True):
        with suppress(OSError):
            for raw in path.read_bytes().splitlines():
                with suppress(*_DAMAGE):
                    yield msgspec.json.decode(raw, type=_LedgerLine)
            return
