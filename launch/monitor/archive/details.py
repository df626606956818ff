"""One trajectory's page: its turns with their text, and its group's members side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from launch.monitor.archive.reading import Known, Located, Record, TokenArrays, UnreadableError, exported, read_record
from launch.monitor.archive.recordings import TurnPlace, recorded_title, turn_places
from launch.monitor.archive.steps import finite
from launch.monitor.archive.tokens import short
from launch.monitor.plain import plain
from launch.monitor.recording import cast_path
from launch.monitor.shapes import Member, RecordingView, SegmentView, TestView, TrajectoryDetail, TurnView
from protocol.cli.output import shown
from protocol.trajectory import Segment, Turn, TurnKind
from protocol.weights import NO_VERSION, version_label

_TEXT_CHARS = 8_000


def detail(known: Known, where: Located) -> TrajectoryDetail:
    """Raises UnreadableError."""
    read = read_record(known, where)
    trajectory = read.trajectory
    path = cast_path(known.run_dir, where.row.recording)
    places = turn_places(path) if path is not None else {}
    return TrajectoryDetail(
        row=where.row,
        directory=str(shown(known.run_dir)),
        size=trajectory.ticket.group_size,
        seed=trajectory.ticket.seed,
        parts=trajectory.reward.parts,
        tests=[TestView(plain(test.name), test.passed, test.weight) for test in trajectory.tests],
        error=plain(trajectory.error),
        instruction=recorded_title(path) if path is not None else "",
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


def member(known: Known, where: Located) -> Member:
    """Beside the others of its group, also where its record is damaged."""
    try:
        trajectory = exported(known.run_dir, where)
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


def _segments(known: Known, read: Record, places: dict[int, TurnPlace]) -> list[SegmentView]:
    found: list[SegmentView] = []
    index = 0
    for segment, tokens in zip(read.trajectory.segments, read.tokens, strict=True):
        turns: list[TurnView] = []
        for turn in segment.turns:
            is_model = turn.kind is TurnKind.MODEL
            number, place = (index, places.get(index)) if is_model else (-1, None)
            turns.append(_turn(known, (segment, tokens), turn, number, place))
            index += is_model
        found.append(SegmentView(len(segment), segment.parent, segment.offset, turns))
    return found


def _turn(
    known: Known, whole: tuple[Segment, TokenArrays], turn: Turn, index: int, place: TurnPlace | None
) -> TurnView:
    segment, tokens = whole
    here = slice(turn.start, turn.end)
    sampled = segment.loss_mask[here] == 1
    gaps = np.abs(tokens.logprobs[here] - segment.logprobs[here])[sampled]
    gaps, ages = gaps[~np.isnan(gaps)], tokens.ages[here][sampled]
    own = segment.logprobs[here][sampled]
    text = known.vocabulary.text(segment.token_ids[here].tolist())
    cut = max(0, len(text) - _TEXT_CHARS)
    half = _TEXT_CHARS // 2
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
        gap_mean=short(float(gaps.mean())) if gaps.size else None,
        gap_max=short(float(gaps.max())) if gaps.size else None,
        age_max=int(ages.max()) if ages.size and ages.max() >= 0 else None,
        at_s=place.at_s if place else None,
        recording_offset=place.offset if place else None,
    )


def _recording(known: Known, name: str, path: Path | None) -> RecordingView | None:
    try:
        size = path.stat().st_size if path is not None else 0
    except OSError:  # recordings may be deleted at any time
        return None
    return RecordingView(name, size, name in known.live) if size else None
