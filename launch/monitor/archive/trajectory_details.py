"""Reads the details of a trajectory with its turns, and of a group's members for their comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from launch.monitor.api_types import GroupMemberDetail, RecordingView, SegmentView, TestView, TrajectoryDetail, TurnView
from launch.monitor.archive.recordings import TurnPosition, find_turn_positions, read_recording_title
from launch.monitor.archive.step_table import finite_or_none
from launch.monitor.archive.token_facts import (
    LocatedTrajectory,
    ReadContext,
    TokenArrays,
    TrajectoryRecord,
    read_trajectory_record,
)
from launch.monitor.archive.token_pages import round_for_display
from protocol.cli.output import display_path
from protocol.plain_text import sanitize_text
from protocol.run_directory.page_pictures import list_pictures, pictures_path
from protocol.run_directory.recording_reader import recording_path
from protocol.run_directory.trajectory_export import UnreadableTrajectoryError, read_exported_trajectory
from protocol.trajectory import Segment, Turn, TurnKind
from protocol.weights import NO_VERSION, format_version

_TEXT_CHARS = 8_000


def read_trajectory_detail(context: ReadContext, where: LocatedTrajectory) -> TrajectoryDetail:
    """Read a trajectory with all its turns.  Raises UnreadableTrajectoryError."""
    read = read_trajectory_record(context, where)
    trajectory = read.trajectory
    path = recording_path(context.run_dir, where.row.recording)
    positions = find_turn_positions(path) if path is not None else {}
    pictures = _pictures_by_turn(context, where.row.recording)
    return TrajectoryDetail(
        row=where.row,
        directory=str(display_path(context.run_dir)),
        size=trajectory.request.group_size,
        seed=trajectory.request.seed,
        parts=trajectory.reward.parts,
        tests=[TestView(sanitize_text(test.name), test.passed, test.weight) for test in trajectory.tests],
        error=sanitize_text(trajectory.error),
        instruction=read_recording_title(path) if path is not None else "",
        engine=trajectory.engine,
        node=trajectory.node,
        worker=trajectory.worker,
        started_at=trajectory.started_at,
        ms=trajectory.timings_ms,
        trained_version="" if where.version == NO_VERSION else format_version(where.version),
        max_staleness=context.max_staleness,
        segments=_segments(context, read, positions, pictures),
        recording=_recording(context, where.row.recording, path),
    )


def read_group_member(context: ReadContext, where: LocatedTrajectory) -> GroupMemberDetail:
    """Return one member of a group for the comparison, also if its record is damaged."""
    try:
        trajectory = read_exported_trajectory(context.run_dir, where.entry)
    except UnreadableTrajectoryError as error:
        return GroupMemberDetail(where.row, {}, 0, 0, 0, {}, "", problem=str(error))
    return GroupMemberDetail(
        row=where.row,
        parts=trajectory.reward.parts,
        turns=sum(turn.kind is TurnKind.MODEL for segment in trajectory.segments for turn in segment.turns),
        tests_passed=sum(test.passed for test in trajectory.tests),
        tests=len(trajectory.tests),
        ms=trajectory.timings_ms,
        error=sanitize_text(trajectory.error),
    )


def _pictures_by_turn(context: ReadContext, recording: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    if recording_path(context.run_dir, recording) is not None:
        for number, picture in enumerate(list_pictures(pictures_path(context.run_dir, recording))):
            found.setdefault(picture.turn, []).append(number)
    return found


def _segments(
    context: ReadContext,
    read: TrajectoryRecord,
    positions: dict[int, TurnPosition],
    pictures: dict[int, list[int]],
) -> list[SegmentView]:
    found: list[SegmentView] = []
    index, is_numbered = 0, any(turn.number for segment in read.trajectory.segments for turn in segment.turns)
    for segment, tokens in zip(read.trajectory.segments, read.tokens, strict=True):
        turns: list[TurnView] = []
        for turn in segment.turns:
            is_model = turn.kind is TurnKind.MODEL
            number = -1 if not is_model else turn.number if is_numbered else index
            view = _turn(context, (segment, tokens), turn, number, positions.get(number))
            opens = turn.kind is TurnKind.PROMPT and not index
            turns.append(replace(view, pictures=pictures.get(number, []) if is_model or opens else []))
            index += is_model
        found.append(SegmentView(len(segment), segment.parent, segment.offset, turns))
    return found


def _turn(
    context: ReadContext, whole: tuple[Segment, TokenArrays], turn: Turn, index: int, position: TurnPosition | None
) -> TurnView:
    segment, tokens = whole
    here = slice(turn.start, turn.end)
    sampled = segment.loss_mask[here] == 1
    gaps = np.abs(tokens.logprobs[here] - segment.logprobs[here])[sampled]
    gaps, staleness = gaps[~np.isnan(gaps)], tokens.staleness[here][sampled]
    own = segment.logprobs[here][sampled]
    text = context.vocabulary.decode(segment.token_ids[here].tolist())
    cut = max(0, len(text) - _TEXT_CHARS)
    half = _TEXT_CHARS // 2
    return TurnView(
        kind=turn.kind.value,
        index=index,
        start=turn.start,
        end=turn.end,
        text=f"{text[:half]}\n…\n{text[-half:]}" if cut else text,
        cut_chars=cut,
        tool=sanitize_text(turn.tool),
        exit_code=turn.exit_code,
        ms=turn.duration_ms,
        role=turn.role.value,
        malformed=turn.malformed,
        mixed_prefix=turn.mixed_prefix,
        cuts=turn.server_switches,
        reward=turn.reward,
        version=format_version(turn.key_version) if turn.key_version >= 0 else "",
        sampled=int(sampled.sum()),
        trained=len(gaps),
        logprob_mean=finite_or_none(float(own.mean())) if own.size else None,
        logprob_gap_mean=round_for_display(float(gaps.mean())) if gaps.size else None,
        logprob_gap_max=round_for_display(float(gaps.max())) if gaps.size else None,
        staleness_max=int(staleness.max()) if staleness.size and staleness.max() >= 0 else None,
        at_s=position.at_s if position else None,
        recording_offset=position.offset if position else None,
        pictures=[],
    )


def _recording(context: ReadContext, name: str, path: Path | None) -> RecordingView | None:
    try:
        size = path.stat().st_size if path is not None else 0
    except OSError:  # recordings may be deleted at any time
        return None
    return RecordingView(name, size, name in context.live) if size else None
