"""One trajectory's record where it lies, with what the learner made of its tokens.

It is read from the export and from ``trained/`` when it is asked for, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from launch.monitor.api_types import Number, TrajectoryRow
from launch.monitor.archive.trajectory_table import Array
from launch.monitor.archive.vocabulary import EMPTY_VOCABULARY, TokenVocabulary
from protocol.codec import CodecError
from protocol.errors import LongshoreError
from protocol.run_directory.trained_log import TrainedTokens, TrainedTrajectoryEntry, read_trained_tokens
from protocol.run_directory.trajectory_export import ExportIndexEntry, read_exported_trajectory
from protocol.staleness import token_ages
from protocol.trajectory import Segment, Trajectory
from protocol.weights import NO_VERSION, Lineage


class UnreadableTrajectoryError(LongshoreError):
    """A trajectory's record cannot be read: one line says why."""


@dataclass(frozen=True, slots=True)
class LocatedTrajectory:
    """A trajectory's row, and where the rest of it is."""

    row: TrajectoryRow
    entry: ExportIndexEntry
    used: TrainedTrajectoryEntry
    version: int
    """The version of the weights of the step that used it; −1 if none did."""


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What all trajectories of a run have in common."""

    run_dir: Path
    lineage: Lineage = field(default_factory=Lineage)
    vocabulary: TokenVocabulary = EMPTY_VOCABULARY
    max_staleness: Number = None
    live: frozenset[str] = frozenset()
    """Recordings that are being made."""


class TokenArrays(NamedTuple):
    """The tokens of one segment, [T] each."""

    ages: Array
    """−1 for what was not sampled, and where no step has used it."""
    logprobs: Array
    """The learner's; NaN where there is none."""
    advantages: Array
    marks: Array


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A trajectory, and what became of its tokens."""

    trajectory: Trajectory
    tokens: list[TokenArrays]
    """One for each segment."""


def read_trajectory(run_dir: Path, where: LocatedTrajectory) -> Trajectory:
    """Raises UnreadableError."""
    place = f"the record of {where.row.id} in {where.entry.file}"
    try:
        found = read_exported_trajectory(run_dir, where.entry)
    except (CodecError, OSError) as error:
        raise UnreadableTrajectoryError(f"{place} cannot be read: {error}") from error
    if found.request.trajectory_id != where.row.id:
        raise UnreadableTrajectoryError(f"{place} is that of {found.request.trajectory_id}: the file was replaced")
    return found


def read_trajectory_record(known: ReadContext, where: LocatedTrajectory) -> TrajectoryRecord:
    """Raises UnreadableError."""
    trajectory = read_trajectory(known.run_dir, where)
    try:
        facts = read_trained_tokens(known.run_dir, where.used)
    except (ValueError, OSError):
        facts = None  # without them the rest can be shown all the same
    if facts is not None and len(facts.loss_flags) != trajectory.tokens:
        facts = None
    return TrajectoryRecord(trajectory, list(_per_segment(known.lineage, where.version, trajectory, facts)))


def _per_segment(
    lineage: Lineage, version: int, trajectory: Trajectory, facts: TrainedTokens | None
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
                np.zeros(len(segment), np.uint8) if facts is None else facts.loss_flags[here],
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
