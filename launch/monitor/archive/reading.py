"""One trajectory's record where it lies, with what the learner made of its tokens.

It is read from the export and from ``trained/`` when it is asked for, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from launch.monitor.archive.columns import Array
from launch.monitor.archive.vocabulary import NONE, Vocabulary
from launch.monitor.shapes import Number, TrajectoryRow
from protocol.codec import CodecError
from protocol.errors import LongshoreError
from protocol.export import ExportEntry, read_exported
from protocol.staleness import token_ages
from protocol.trained import TokenFacts, TrainedEntry, read_facts
from protocol.trajectory import Segment, Trajectory
from protocol.weights import NO_VERSION, Lineage


class UnreadableError(LongshoreError):
    """A trajectory's record cannot be read: one line says why."""


@dataclass(frozen=True, slots=True)
class Located:
    """A trajectory's row, and where the rest of it is."""

    row: TrajectoryRow
    entry: ExportEntry
    used: TrainedEntry
    version: int
    """Of the weights of the step that used it; −1 where none did."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is the same for all trajectories of a run."""

    run_dir: Path
    lineage: Lineage = field(default_factory=Lineage)
    vocabulary: Vocabulary = NONE
    age_bound: Number = None
    live: frozenset[str] = frozenset()
    """Recordings that are being made."""


class TokenArrays(NamedTuple):
    """Of one segment, [T] each."""

    ages: Array
    """−1 for what was not sampled, and where no step has used it."""
    logprobs: Array
    """The learner's; NaN where there is none."""
    advantages: Array
    marks: Array


@dataclass(frozen=True, slots=True)
class Record:
    """A trajectory, and what became of its tokens."""

    trajectory: Trajectory
    tokens: list[TokenArrays]
    """One for each segment."""


def exported(run_dir: Path, where: Located) -> Trajectory:
    """Raises UnreadableError."""
    place = f"the record of {where.row.id} in {where.entry.segment}"
    try:
        found = read_exported(run_dir, where.entry)
    except (CodecError, OSError) as error:
        raise UnreadableError(f"{place} cannot be read: {error}") from error
    if found.ticket.trajectory_id != where.row.id:
        raise UnreadableError(f"{place} is that of {found.ticket.trajectory_id}: the file was replaced")
    return found


def read_record(known: Known, where: Located) -> Record:
    """Raises UnreadableError."""
    trajectory = exported(known.run_dir, where)
    try:
        facts = read_facts(known.run_dir, where.used)
    except (ValueError, OSError):
        facts = None  # without them the rest can be shown all the same
    if facts is not None and len(facts.marks) != trajectory.tokens:
        facts = None
    return Record(trajectory, list(_per_segment(known.lineage, where.version, trajectory, facts)))


def _per_segment(
    lineage: Lineage, version: int, trajectory: Trajectory, facts: TokenFacts | None
) -> Sequence[TokenArrays]:
    found: list[TokenArrays] = []
    start = 0
    for segment in trajectory.segments:
        here = slice(start, start + len(segment))
        start = here.stop
        none = np.full(len(segment), np.nan, np.float32)
        found.append(
            TokenArrays(
                _ages(segment, lineage, version),
                none if facts is None else facts.logprobs[here],
                none if facts is None else facts.advantages[here],
                np.zeros(len(segment), np.uint8) if facts is None else facts.marks[here],
            )
        )
    return found


def _ages(segment: Segment, lineage: Lineage, version: int) -> Array:
    unknown = np.full(len(segment), -1, np.int32)
    if version == NO_VERSION:
        return unknown
    try:
        return token_ages(segment.versions, segment.loss_mask, lineage, version)
    except KeyError:  # lineage.jsonl is not whole
        return unknown
