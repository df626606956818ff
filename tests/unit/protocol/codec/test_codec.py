"""If these fail, a learner trains on tokens that no engine sampled, or one bad message ends the buffer."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.codec import CodecError
from protocol.trajectory import EpisodeStatus, ReplyRole, Segment, Trajectory, Turn, TurnKind
from tests.support.runs.trajectories import assert_equal, make_segment, make_trajectory

MAX = 1 << 20
ARRAYS = ("versions", "token_ids", "logprobs", "loss_mask")
LENGTH = struct.Struct("<Q")


@st.composite
def segments(draw: st.DrawFn, before: list[Segment]) -> Segment:
    length = draw(st.integers(0, 20))
    mask = np.array(draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)), dtype=np.uint8)
    on = mask == 1
    logprobs = np.array(draw(st.lists(st.floats(-50, 0, width=32), min_size=length, max_size=length)), dtype=np.float32)
    versions = draw(st.lists(st.integers(0, (1 << 31) - 1), min_size=length, max_size=length))
    tokens = draw(st.lists(st.integers(0, (1 << 31) - 1), min_size=length, max_size=length))
    parent = draw(st.integers(-1, len(before) - 1))
    precede = before[parent].offset + len(before[parent]) if parent >= 0 else 0
    turn = Turn(
        draw(st.sampled_from(TurnKind)),
        0,
        length,
        draw(st.text(max_size=4)),
        draw(st.none() | st.integers(-128, 255)),
        draw(st.floats(0, 1e9)),
        draw(st.integers(-1, 1 << 40)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([0.0, -0.5])),
    )
    return Segment(
        np.array(tokens, dtype=np.int32),
        mask,
        np.where(on, logprobs, 0).astype(np.float32),
        np.where(on, np.array(versions, dtype=np.int32), -1),
        (turn,),
        parent,
        draw(st.integers(0, precede)),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    made: list[Segment] = []
    for _ in range(draw(st.integers(1, 3))):
        made.append(draw(segments(made)))
    return replace(
        make_trajectory(draw(st.integers(0, 1 << 40)), draw(st.integers(0, 3)), reward=draw(st.floats(-9, 9))),
        segments=tuple(made),
        status=draw(st.sampled_from(EpisodeStatus)),
        error=draw(st.text(max_size=20)),
        timings_ms=draw(st.dictionaries(st.text(max_size=5), st.floats(0, 1e12), max_size=3)),
    )


@settings(max_examples=60, deadline=None)
@given(trajectories())
def test_a_trajectory_survives_a_round_trip(trajectory: Trajectory) -> None:
    assert_equal(trajectory, codec.unpack_trajectory(codec.pack_trajectory(trajectory), max_bytes=MAX))


def test_equal_trajectories_have_equal_digests_and_different_ones_differ() -> None:
    one, again, other = (codec.encode_trajectory(make_trajectory(sampled=n)) for n in (5, 5, 6))
    assert codec.frames_digest(one) == codec.frames_digest(again) != codec.frames_digest(other)


def test_neither_encoding_nor_decoding_copies_arrays() -> None:
    trajectory = make_trajectory(sampled=1000)
    (segment,) = trajectory.segments
    frames = codec.encode_trajectory(trajectory)
    (decoded,) = codec.decode_trajectory(frames, max_bytes=MAX).segments
    for name in ARRAYS:
        assert np.shares_memory(getattr(segment, name), getattr(decoded, name))


def test_repetitive_arrays_are_compressed_in_a_blob() -> None:
    frames = codec.encode_trajectory(make_trajectory(sampled=1000))
    header, versions, tokens, logprobs, mask = map(len, frames)
    blob = codec.pack_frames(frames)
    assert len(blob) < header + tokens + logprobs + (versions + mask) // 10
    assert [bytes(frame) for frame in codec.unpack_frames(blob)] == [bytes(frame) for frame in frames]
    (stored,) = codec.unpack_trajectory(blob).segments
    for name in ARRAYS:
        assert getattr(stored, name).flags.aligned
        assert not getattr(stored, name).flags.writeable


def test_incompressible_arrays_are_read_from_a_blob_without_copying() -> None:
    header, versions, _, *others = codec.encode_trajectory(make_trajectory(sampled=1000))
    tokens = np.random.default_rng(0).bytes(len(versions))
    blob = codec.pack_frames([header, versions, tokens, *others])
    assert np.shares_memory(np.frombuffer(codec.unpack_frames(blob)[2], np.int32), np.frombuffer(blob, np.uint8))


@pytest.mark.parametrize("length", [-1, 1, 1 << 20, 1 << 62])
def test_a_blob_with_a_wrong_frame_length_is_refused(length: int) -> None:
    blob = bytearray(codec.pack_trajectory(make_trajectory(sampled=1000)))
    at = 8 + 8  # of its second frame, after magic, count and the first
    (promised,) = LENGTH.unpack_from(blob, at)
    LENGTH.pack_into(blob, at, promised + length)
    with pytest.raises(CodecError):
        codec.unpack_frames(blob, max_bytes=MAX)


def test_decoded_arrays_are_read_only_even_if_their_frames_are_writable() -> None:
    frames = [memoryview(bytearray(frame)) for frame in codec.encode_trajectory(make_trajectory())]
    (decoded,) = codec.decode_trajectory(frames, max_bytes=MAX).segments
    for name in ARRAYS:
        assert not getattr(decoded, name).flags.writeable


def test_a_message_above_the_size_limit_is_refused_unread() -> None:
    with pytest.raises(CodecError, match="above the limit"):
        codec.decode_trajectory([b"x" * 100], max_bytes=99)


def test_a_different_schema_version_is_refused_and_named() -> None:
    header, *arrays = codec.encode_trajectory(make_trajectory())
    for foreign in (codec.TRAJECTORY_SCHEMA - 1, 9):
        with pytest.raises(CodecError, match=f"schema {foreign}"):
            codec.decode_trajectory([header[:4] + bytes([foreign]) + header[5:], *arrays], max_bytes=MAX)


def inspected(trajectory: Trajectory) -> codec.TrajectorySummary:
    return codec.inspect_frames(codec.encode_trajectory(trajectory), max_bytes=MAX)


@settings(max_examples=60, deadline=None)
@given(trajectories())
def test_a_summary_agrees_with_its_trajectory(trajectory: Trajectory) -> None:
    frames = codec.encode_trajectory(trajectory)
    summary = codec.inspect_frames(frames, max_bytes=MAX)
    assert (summary.request, summary.status, summary.reward) == (
        trajectory.request,
        trajectory.status,
        trajectory.reward,
    )
    assert (summary.tokens, summary.sampled) == (trajectory.tokens, trajectory.sampled_tokens)
    assert summary.digest == codec.frames_digest(frames)
    used = np.concatenate([segment.versions[segment.loss_mask == 1] for segment in trajectory.segments])
    assert summary.versions == tuple(sorted(set(used.tolist())))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.arange(8)}, "token_ids is int64"),
        ({"versions": np.full(9, -1, np.int32)}, "different lengths"),
        ({"loss_mask": np.full(8, 2, np.uint8)}, "other than 0 and 1"),
        ({"logprobs": np.full(8, np.nan, np.float32)}, "not finite"),
        ({"logprobs": np.full(8, -1, np.float32)}, "logprobs is not 0"),
        ({"versions": np.full(8, -1, np.int32)}, "versions is negative"),
        ({"versions": np.zeros(8, np.int32)}, "versions is not -1"),
        ({"turns": (Turn(TurnKind.MODEL, 3, 9),)}, "end"),
        ({"offset": 1}, "begins after 1 tokens, and there are 0"),
        ({"parent": 0}, "segment 0 has parent 0"),
    ],
)
def test_a_trajectory_that_breaks_an_invariant_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(CodecError, match=message):
        inspected(make_trajectory(segments=(replace(make_segment(), **change),)))


def test_a_segment_that_begins_after_the_preceding_tokens_is_refused() -> None:
    """Otherwise the learner would give the policy another context than the one it sampled in."""
    root, whole = make_segment(), replace(make_segment(), parent=0, offset=8)
    inspected(make_trajectory(segments=(root, whole, replace(make_segment(), parent=1, offset=16))))
    with pytest.raises(CodecError, match="segment 2 begins after 17 tokens, and there are 16"):
        inspected(make_trajectory(segments=(root, whole, replace(make_segment(), parent=1, offset=17))))


def test_a_nan_reward_is_refused() -> None:
    with pytest.raises(CodecError, match="total"):
        inspected(make_trajectory(reward=float("nan")))


def test_turns_without_rewards_and_roles_are_encoded_in_the_older_format() -> None:
    """Readers and recorded runs of another age understand each other."""
    made = make_trajectory(1, 0)
    bare = codec.encode_trajectory(made)
    assert b'"turns":{' in bytes(bare[0])
    assert bytes(bare[0]).count(b'"reward"') == 1, "the episode's alone"
    assert {turn.reward for turn in codec.decode_trajectory(bare, max_bytes=MAX).segments[0].turns} == {0.0}
    assert b'"role"' not in bytes(bare[0])
    assert {turn.role for turn in codec.decode_trajectory(bare, max_bytes=MAX).segments[0].turns} == {ReplyRole.WORK}
    turns = tuple(turn._replace(reward=0.25, role=ReplyRole.AUXILIARY) for turn in made.segments[0].turns)
    paid = replace(made, segments=(replace(made.segments[0], turns=turns), *made.segments[1:]))
    assert_equal(codec.decode_trajectory(codec.encode_trajectory(paid), max_bytes=MAX), paid)
