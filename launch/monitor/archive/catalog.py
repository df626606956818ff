"""Keeps every trajectory, group and step of one run, followed by offset in four files.

``trajectories/index.jsonl`` lists trajectories, ``trained/index.jsonl`` their use by steps, ``events/buffer.jsonl`` the
opening and closing of groups, and ``metrics.jsonl`` the metrics of steps.  Several processes write these files: facts
about a trajectory that is not listed yet wait until it is.  If a file was replaced or cut, everything is read again.
Not thread-safe: :class:`launch.monitor.run_follower.RunFollower` owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from launch.monitor.archive.step_table import StepTable
from launch.monitor.archive.trajectory_table import TrajectoryTable, TrajectoryUse
from protocol.groups import OUTCOME_DROP_REASONS, GroupOutcome
from protocol.run_directory.file_tail import AppendedLines, FileTail, decode_line, decode_lines
from protocol.run_directory.layout import EVENTS_FOLDER, METRICS_FILE
from protocol.run_directory.trained_log import (
    TRAINED_FOLDER,
    TRAINED_INDEX,
    RewindEntry,
    TrainedStepEntry,
    TrainedTrajectoryEntry,
    parse_trained_line,
)
from protocol.run_directory.trajectory_export import EXPORT_INDEX, TRAJECTORIES_FOLDER, ExportIndexEntry
from protocol.trajectory import make_trajectory_id

_CHUNK_BYTES = 4 << 20
_GROUP_EVENT = b'"kind":"group.'
_DROPS = {str(outcome): str(reason) for outcome, reason in OUTCOME_DROP_REASONS.items()}
_MAX_SAMPLES = 1 << 16


@dataclass(slots=True)
class GroupFacts:
    """The buffer's events about a group."""

    task: str = ""
    size: int = 0
    outcome: str = GroupOutcome.OPEN.value
    opened_at: float | None = None
    closed_at: float | None = None


class _GroupEvent(msgspec.Struct):
    kind: str
    t: float
    group: Annotated[int, Meta(ge=0, le=(1 << 40) - 1)]
    task: str = ""
    size: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 0
    outcome: str = ""


class _LedgerLine(msgspec.Struct):
    step: int
    version: int
    trained: list[str]
    dropped: dict[str, str]


_ENTRY, _EVENT = msgspec.json.Decoder(ExportIndexEntry), msgspec.json.Decoder(_GroupEvent)
_LEDGER = msgspec.json.Decoder(_LedgerLine)


class RunCatalog:
    """The tables of one run."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._reset()
        self.revision = 0
        """Changes whenever an answer may have changed."""

    def _reset(self) -> None:
        self.trajectories, self.steps = TrajectoryTable(), StepTable()
        self.groups: dict[int, GroupFacts] = {}
        self._dropped: dict[int, str] = {}
        """Group → reason for which its members are dropped, including members that are not listed yet."""
        self.versions: dict[int, int] = {}
        """Step → version of the weights that the step updated."""
        self.ended = False
        """Whether the run has ended, so that trajectories left in the buffer count as dropped."""
        self.damaged_lines = 0
        """Number of damaged lines, which were left out."""
        self._uses_before_index: dict[str, TrajectoryUse] = {}
        """Uses of trajectories that are not in the index yet."""
        self._index = FileTail(self.run_dir / TRAJECTORIES_FOLDER / EXPORT_INDEX)
        self._trained = FileTail(self.run_dir / TRAINED_FOLDER / TRAINED_INDEX)
        self._buffer = FileTail(self.run_dir / EVENTS_FOLDER / "buffer.jsonl")
        self._metrics = FileTail(self.run_dir / METRICS_FILE)
        self._files = (self._index, self._trained, self._buffer, self._metrics)
        self._ledger_read = False

    @property
    def unread_bytes(self) -> int:
        """Number of bytes that are not read yet."""
        return sum(file.unread_bytes for file in self._files)

    def poll(self) -> bool:
        """Read appended lines, a few megabytes at most, and return whether there may be more."""
        index = self._index.read_lines(_CHUNK_BYTES)
        self._add_entries(index)
        if self._index.unread_bytes and index.lines:  # their uses follow once all are listed
            return self._finish_poll([index])
        trained, buffer, metrics = (file.read_lines(_CHUNK_BYTES) for file in self._files[1:])
        found = [index, trained, buffer, metrics]
        if not any(fresh.replaced for fresh in found):
            self._read_ledger()
            self._apply_trained(trained)
            self._apply_group_events(buffer)
            self.steps.add_lines(metrics)
        return self._finish_poll(found)

    def _finish_poll(self, found: Sequence[AppendedLines]) -> bool:
        """Return whether anything was new; start over if a file was replaced."""
        if replaced := any(fresh.replaced for fresh in found):
            self._reset()
        more = replaced or any(fresh.lines for fresh in found)
        self.revision += more
        return more

    def set_ended(self, ended: bool) -> None:
        """Set whether the run has ended."""
        if ended != self.ended:
            self.ended = ended
            self.revision += 1

    def _add_entries(self, fresh: AppendedLines) -> None:
        entries = [entry for raw, _ in fresh.lines if (entry := decode_line(_ENTRY, raw)) is not None]
        self.damaged_lines += len(fresh.lines) - len(entries)
        self.trajectories.append_entries(entries)
        if self._uses_before_index:
            self._mark_used(
                [use for entry in entries if (use := self._uses_before_index.pop(entry.trajectory, None)) is not None]
            )
        for group in {entry.group for entry in entries} & self._dropped.keys():
            self._drop(group, self._dropped[group])

    def _apply_trained(self, fresh: AppendedLines) -> None:
        uses: list[TrajectoryUse] = []
        for raw, _ in fresh.lines:
            match parse_trained_line(raw):
                case TrainedStepEntry() as step:
                    uses += self._uses(step)
                case RewindEntry(rewound_to=kept):
                    self._mark_used(uses)
                    uses = []
                    self._rewind(kept)
                case None:
                    self.damaged_lines += 1
        if uses:
            self._mark_used(uses)

    def _uses(self, line: TrainedStepEntry) -> list[TrajectoryUse]:
        if line.step is not None:
            self.versions[line.step] = line.version
        return [TrajectoryUse(entry, line.step, line.version) for entry in line.trajectories]

    def _rewind(self, kept: int) -> None:
        self.trajectories.rewind_to(kept)
        self._uses_before_index = {
            name: use for name, use in self._uses_before_index.items() if (use.step or 0) <= kept
        }
        self.versions = {step: version for step, version in self.versions.items() if step <= kept}

    def _mark_used(self, uses: Sequence[TrajectoryUse]) -> None:
        """Mark uses; those of trajectories that are not in the index yet wait."""
        rows = [self.trajectories.find_row(use.entry.trajectory) for use in uses]
        self._uses_before_index |= {
            use.entry.trajectory: use for row, use in zip(rows, uses, strict=True) if row is None
        }
        known = [(row, use) for row, use in zip(rows, uses, strict=True) if row is not None]
        self.trajectories.mark_used([row for row, _ in known], [use for _, use in known])

    def _read_ledger(self) -> None:
        """Read the newest checkpoint's ledger once, for a run without ``trained/``."""
        if self._ledger_read or self._trained.path.exists():
            return
        self._ledger_read = True
        ledgers = sorted((self.run_dir / "checkpoints").glob("step-*[0-9]/ledger.jsonl"))
        for line in decode_lines(_LEDGER, ledgers[-1]) if ledgers else ():
            entries = chain(
                map(TrainedTrajectoryEntry, line.trained),
                (TrainedTrajectoryEntry(name, reason) for name, reason in line.dropped.items()),
            )
            self._mark_used(self._uses(TrainedStepEntry(line.step, 0.0, line.version, list(entries))))

    def _apply_group_events(self, fresh: AppendedLines) -> None:
        for raw, _ in fresh.lines:
            if _GROUP_EVENT in raw and (event := decode_line(_EVENT, raw)) is not None:
                self._apply_group_event(event)

    def _apply_group_event(self, event: _GroupEvent) -> None:
        facts = self.groups.setdefault(event.group, GroupFacts())
        facts.task, facts.size = event.task or facts.task, max(facts.size, event.size)
        if event.kind == "group.opened":
            facts.opened_at = event.t
            return
        facts.closed_at, facts.outcome = event.t, event.outcome or facts.outcome
        if (reason := _DROPS.get(facts.outcome)) is not None:
            self._dropped[event.group] = reason
            self._drop(event.group, reason)

    def _drop(self, group: int, reason: str) -> None:
        size = min(self.groups[group].size, _MAX_SAMPLES)
        rows = (self.trajectories.find_row(make_trajectory_id(group, sample)) for sample in range(size))
        if known := [row for row in rows if row is not None]:
            self.trajectories.mark_dropped(known, reason)

    def group_rows(self, group: int) -> list[int]:
        """Return the rows of a group's trajectories, by sample."""
        rows = np.flatnonzero(self.trajectories["group"] == group)
        return sorted(rows.tolist(), key=lambda row: int(self.trajectories["sample"][row]))
