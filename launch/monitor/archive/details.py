"""One trajectory where it lies: turns with their text, tokens with what became of each, members side by side.

Everything here is read from the export and from ``trained/`` when it is asked for, and nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from launch.monitor.archive.columns import Array
from launch.monitor.archive.recordings import TurnPlace, turn_places
from launch.monitor.archive.steps import finite
from launch.monitor.archive.vocabulary import NONE, Vocabulary
from launch.monitor.plain import plain
from launch.monitor.recording import cast_path
from launch.monitor.shapes import (
    Fate,
    Member,
    Number,
    RecordingView,
    SegmentView,
    State,
    TestView,
    TokenPage,
    TrajectoryDetail,
    TrajectoryRow,
    TurnView,
)
from protocol.codec import CodecError
from protocol.errors import LongshoreError
from protocol.export import ExportEntry, read_exported
from protocol.staleness import token_ages
from protocol.trained import Mark, TokenFacts, TrainedEntry, read_facts
from protocol.trajectory import DropReason, Segment, Trajectory, Turn, TurnKind
from protocol.weights import NO_VERSION, Lineage, version_label

_TEXT_CHARS = 8_000
MAX_TOKENS = 4_000
"""Of a page."""


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


class _Tokens(NamedTuple):
    """Of one segment, [T] each."""

    ages: Array
    """−1 for what was not sampled, and where no step has used it."""
    logprobs: Array
    """The learner's; NaN where there is none."""
    advantages: Array
    marks: Array


@dataclass(frozen=True, slots=True)
class _Read:
    trajectory: Trajectory
    tokens: list[_Tokens]
    """One for each segment."""


def detail(known: Known, where: Located) -> TrajectoryDetail:
    """Raises UnreadableError."""
    read = _read(known, where)
    trajectory = read.trajectory
    path = cast_path(known.run_dir, where.row.recording)
    places = turn_places(path) if path is not None else {}
    return TrajectoryDetail(
        row=where.row,
        size=trajectory.ticket.group_size,
        seed=trajectory.ticket.seed,
        parts=trajectory.reward.parts,
        tests=[TestView(plain(test.name), test.passed, test.weight) for test in trajectory.tests],
        error=plain(trajectory.error),
        instruction="",
        engine=trajectory.engine,
        node=trajectory.node,
        worker=trajectory.worker,
        started_at=trajectory.started_at,
        ms=trajectory.timings_ms,
        trained_version="" if where.version == NO_VERSION else version_label(where.version),
        age_bound=known.age_bound,
        segments=_segments(known, read, places),
        recording=_recording(known, where.row.recording, path),
    )


def token_page(known: Known, where: Located, segment: int, start: int, limit: int) -> TokenPage | None:
    """None where there is no such segment.  Raises UnreadableError."""
    read = _read(known, where)
    if not 0 <= segment < len(read.trajectory.segments):
        return None
    own, tokens = read.trajectory.segments[segment], read.tokens[segment]
    end = min(len(own), start + min(limit, MAX_TOKENS))
    here = slice(min(start, end), end)
    sampled = own.loss_mask[here] == 1
    logprobs = np.where(sampled, own.logprobs[here], np.nan)
    ids = own.token_ids[here].tolist()
    return TokenPage(
        segment=segment,
        start=here.start,
        end=end,
        total=len(own),
        id=ids,
        text=known.vocabulary.pieces(ids),
        logprob=_numbers(logprobs),
        probability=_numbers(np.exp(logprobs)),
        version=[version_label(version) if version >= 0 else "" for version in own.versions[here].tolist()],
        age=[age if age >= 0 else None for age in tokens.ages[here].tolist()],
        fate=_fates(own, tokens, where, known.age_bound)[here],
        learner_logprob=_numbers(tokens.logprobs[here]),
        gap=_numbers(tokens.logprobs[here] - logprobs),
        advantage=_numbers(tokens.advantages[here]),
    )


def member(known: Known, where: Located) -> Member:
    """Beside the others of its group, also where its record is damaged."""
    try:
        trajectory = _exported(known.run_dir, where)
    except UnreadableError as error:
        return Member(where.row, {}, 0, 0, 0, {}, "", problem=str(error))
    return Member(
        row=where.row,
        parts=trajectory.reward.parts,
        turns=sum(turn.kind is TurnKind.MODEL for segment in trajectory.segments for turn in segment.turns),
        tests_passed=sum(test.passed for test in trajectory.tests),
        tests=len(trajectory.tests),
        ms=trajectory.timings_ms,
        error=plain(trajectory.error),
    )


def _exported(run_dir: Path, where: Located) -> Trajectory:
    try:
        return read_exported(run_dir, where.entry)
    except (CodecError, OSError) as error:
        raise UnreadableError(
            f"the record of {where.row.id} in {where.entry.segment} cannot be read: {error}"
        ) from error


def _read(known: Known, where: Located) -> _Read:
    trajectory = _exported(known.run_dir, where)
    try:
        facts = read_facts(known.run_dir, where.used)
    except (ValueError, OSError):
        facts = None  # without them the rest can be shown all the same
    if facts is not None and len(facts.marks) != trajectory.tokens:
        facts = None
    return _Read(trajectory, list(_per_segment(known.lineage, where.version, trajectory, facts)))


def _per_segment(lineage: Lineage, version: int, trajectory: Trajectory, facts: TokenFacts | None) -> Sequence[_Tokens]:
    found: list[_Tokens] = []
    start = 0
    for segment in trajectory.segments:
        here = slice(start, start + len(segment))
        start = here.stop
        none = np.full(len(segment), np.nan, np.float32)
        found.append(
            _Tokens(
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


def _fates(segment: Segment, tokens: _Tokens, where: Located, bound: Number) -> list[Fate]:
    """What became of each token, the strongest word last."""
    found = np.full(len(segment), Fate.PROMPT, object)
    for turn in segment.turns:
        if turn.kind is TurnKind.OBSERVATION:
            found[turn.start : turn.end] = Fate.OBSERVATION
    sampled, stale = segment.loss_mask == 1, tokens.ages > (np.inf if bound is None else bound)
    match where.row.state:
        case State.HELD:
            found[sampled] = Fate.WAITING
        case State.DROPPED:
            found[sampled] = Fate.DROPPED
            if where.row.reason == DropReason.ALL_STALE:
                found[sampled & stale] = Fate.STALE
        case State.TRAINED:
            has_loss = ~np.isnan(tokens.logprobs) if where.used.segment else sampled & ~stale
            found[sampled] = Fate.UNTRAINED
            found[sampled & stale] = Fate.STALE
            found[has_loss] = Fate.TRAINED
            for mark, fate in _FATE_OF_MARK.items():
                found[(tokens.marks & mark.value) > 0] = fate
    return found.tolist()


_FATE_OF_MARK = {
    Mark.LOW: Fate.CLIP_LOW,
    Mark.HIGH: Fate.CLIP_HIGH,
    Mark.DUAL: Fate.CLIP_DUAL,
    Mark.CORRECTED: Fate.CORRECTED,
}


def _segments(known: Known, read: _Read, places: dict[int, TurnPlace]) -> list[SegmentView]:
    found: list[SegmentView] = []
    index = 0
    for segment, tokens in zip(read.trajectory.segments, read.tokens, strict=True):
        turns: list[TurnView] = []
        for turn in segment.turns:
            is_model = turn.kind is TurnKind.MODEL
            turns.append(_turn(known, segment, tokens, turn, index if is_model else -1, places.get(index)))
            index += is_model
        found.append(SegmentView(len(segment), segment.parent, segment.offset, turns))
    return found


def _turn(known: Known, segment: Segment, tokens: _Tokens, turn: Turn, index: int, place: TurnPlace | None) -> TurnView:
    here = slice(turn.start, turn.end)
    sampled = segment.loss_mask[here] == 1
    gaps = np.abs(tokens.logprobs[here] - segment.logprobs[here])[sampled]
    gaps, ages = gaps[~np.isnan(gaps)], tokens.ages[here][sampled]
    own = segment.logprobs[here][sampled]
    text = known.vocabulary.text(segment.token_ids[here].tolist())
    cut = max(0, len(text) - _TEXT_CHARS)
    half = _TEXT_CHARS // 2
    shown = place if index >= 0 else None
    return TurnView(
        kind=turn.kind.value,
        index=index,
        start=turn.start,
        end=turn.end,
        text=f"{text[:half]}\n…\n{text[-half:]}" if cut else text,
        cut_chars=cut,
        tool=plain(turn.tool),
        exit_code=turn.exit_code,
        ms=turn.ms,
        malformed=turn.malformed,
        mixed_prefix=turn.mixed_prefix,
        cuts=turn.cuts,
        reward=turn.reward,
        version=version_label(turn.key_version) if turn.key_version >= 0 else "",
        sampled=int(sampled.sum()),
        trained=len(gaps),
        logprob_mean=finite(float(own.mean())) if own.size else None,
        gap_mean=_short(float(gaps.mean())) if gaps.size else None,
        gap_max=_short(float(gaps.max())) if gaps.size else None,
        age_max=int(ages.max()) if ages.size and ages.max() >= 0 else None,
        at_s=shown.at_s if shown else None,
        recording_offset=shown.offset if shown else None,
    )


def _recording(known: Known, name: str, path: Path | None) -> RecordingView | None:
    try:
        size = path.stat().st_size if path is not None else 0
    except OSError:  # recordings may be deleted at any time
        return None
    return RecordingView(name, size, name in known.live) if size else None


def _numbers(values: Array) -> list[Number]:
    return [None if value != value else _short(value) for value in values.tolist()]  # noqa: PLR0124  NaN is not itself


def _short(value: float) -> float | None:
    """As far as anybody reads it."""
    return finite(float(f"{value:.5g}"))
