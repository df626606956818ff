"""Joins a trajectory of the export with the learner's facts about its tokens from ``trained/``.

Both are read on request, and nothing is cached.
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
from protocol.run_directory.trained_log import TrainedTokens, TrainedTrajectoryEntry, read_trained_tokens
from protocol.run_directory.trajectory_export import ExportIndexEntry, read_exported_trajectory
from protocol.staleness import token_staleness
from protocol.trajectory import Segment, Trajectory
from protocol.weights import NO_VERSION, Lineage


@dataclass(frozen=True, slots=True)
class LocatedTrajectory:
    """A trajectory's row, and the locations of its record and its token facts."""

    row: TrajectoryRow
    entry: ExportIndexEntry
    used: TrainedTrajectoryEntry
    version: int
    """Version of the weights in the step that used the trajectory; −1 if none did."""


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The facts of a run that reading a trajectory needs."""

    run_dir: Path
    lineage: Lineage = field(default_factory=Lineage)
    vocabulary: TokenVocabulary = EMPTY_VOCABULARY
    max_staleness: Number = None
    live: frozenset[str] = frozenset()
    """Names of the recordings that are still being written."""


class TokenArrays(NamedTuple):
    """Facts about the tokens of one segment; each array has shape [T]."""

    staleness: Array
    """Staleness in optimizer steps; −1 for tokens that were not sampled or not used."""
    logprobs: Array
    """The learner's log-probabilities; NaN where not computed."""
    advantages: Array
    marks: Array


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A trajectory with the facts about its tokens."""

    trajectory: Trajectory
    tokens: list[TokenArrays]
    """One entry for each segment."""


def read_trajectory_record(context: ReadContext, where: LocatedTrajectory) -> TrajectoryRecord:
    """Read a trajectory with its token facts, if these are readable.  Raises UnreadableTrajectoryError."""
    trajectory = read_exported_trajectory(context.run_dir, where.entry)
    try:
        facts = read_trained_tokens(context.run_dir, where.used)
    except (ValueError, OSError):
        facts = None  # the rest can still be shown
    if facts is not None and len(facts.loss_flags) != trajectory.tokens:
        facts = None
    return TrajectoryRecord(trajectory, list(_per_segment(context.lineage, where.version, trajectory, facts)))


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
                _staleness(segment, lineage, version),
                none if facts is None else facts.logprobs[here],
                none if facts is None else facts.advantages[here],
                np.zeros(len(segment), np.uint8) if facts is None else facts.loss_flags[here],
            )
        )
    return found


def _staleness(segment: Segment, lineage: Lineage, version: int) -> Array:
    unknown = np.full(len(segment), -1, np.int32)
    if version == NO_VERSION:
        return unknown
    try:
        return token_staleness(segment.versions, segment.loss_mask, lineage, version)
    except KeyError:  # lineage.jsonl is incomplete
        return unknown
