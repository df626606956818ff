"""Bytes ↔ Trajectory.

A trajectory is five frames: a header (magic, schema, checksum over everything, then JSON) and four raw little-endian
arrays, each the concatenation over the segments: versions (int32), token ids (int32), behaviour log-probabilities
(float32) and loss mask (uint8).  Nothing is unpickled, and nothing is copied: the frames of a trajectory with one
segment are its arrays, and the arrays of a decoded trajectory are read-only views of the frames.

:func:`decode_trajectory` and :func:`inspect_frames` check sizes, schema, checksum, types and the invariants of
:class:`protocol.trajectory.Segment`, so their results can be trusted; :func:`encode_trajectory` refuses only values
that the frames cannot hold.  Memory use is at most :func:`decode_memory_bound`: arrays are views, and a header, which
JSON parsing expands up to 24 times, is limited in size before it is parsed.

:func:`pack_trajectory` makes one compressed blob of the frames, the form in the journal, the export and the learner's
payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from protocol.codec.arrays import TrajectoryArrays, join_arrays, view_arrays
from protocol.codec.blob import MAX_TRAJECTORY_BYTES, pack_frames, unpack_frames
from protocol.codec.errors import CodecError
from protocol.codec.frames import TRAJECTORY_SCHEMA, Frame, frames_digest, payload_size, seal, unseal
from protocol.codec.header import TrajectoryHeader, read_header, write_header
from protocol.trajectory import EpisodeStatus, Reward, RolloutRequest, Segment, Trajectory

_HEADER_SHARE, _HEADER_BYTES = 16, 64 * 1024
_JSON_GROWTH = 24
"""Bytes of Python objects per byte of a header: 16 were measured, for a list of floats."""


class TrajectorySummary(NamedTuple):
    """Summary of a trajectory without its tokens."""

    request: RolloutRequest
    status: EpisodeStatus
    reward: Reward
    passed: bool
    """See :attr:`Trajectory.passed`."""
    tokens: int
    sampled: int
    segments: int
    longest: int
    """Tokens of its longest sequence: a segment with all that precedes it."""
    largest_token: int
    """Highest token id; −1 if there are no tokens."""
    largest_logprob: float
    """Highest log-probability; 0 if none was sampled."""
    largest_reward: float
    """Largest absolute value of its reward, the parts of it, the turns' own rewards and the tests' weights."""
    versions: tuple[int, ...]
    """Distinct versions that sampled its tokens, in ascending order."""
    digest: bytes


def encode_trajectory(trajectory: Trajectory) -> list[Frame]:
    """Return the frames of ``trajectory``, which share its arrays' memory if it has one segment.

    Raises CodecError if a segment has a wrong dtype or length, or JSON cannot hold a field.
    """
    if not trajectory.segments:
        raise CodecError("a trajectory has at least one segment")
    arrays = join_arrays(trajectory.segments)
    header = write_header(trajectory)
    frames: list[Frame] = [array.data.cast("B") if len(array) else b"" for array in arrays]
    return [seal(header, frames), *frames]


def decode_trajectory(frames: Sequence[Frame], *, max_bytes: int) -> Trajectory:
    """Return the trajectory in ``frames``, at most ``max_bytes`` in total; its arrays are read-only views of the
    frames.

    Raises CodecError, and nothing else, for any bytes.
    """
    header, arrays = _checked(frames, max_bytes)
    return Trajectory(
        request=header.read_request(),
        status=header.status,
        reward=header.read_reward(),
        segments=_segments(header, arrays),
        tests=header.read_tests(),
        engine=header.engine,
        node=header.node,
        worker=header.worker,
        started_at=header.started_at,
        timings_ms=header.timings_ms,
        error=header.error,
    )


def inspect_frames(frames: Sequence[Frame], *, max_bytes: int) -> TrajectorySummary:
    """Check everything that :func:`decode_trajectory` checks, and build only the summary.  Raises CodecError."""
    header, arrays = _checked(frames, max_bytes)
    return TrajectorySummary(
        request=header.read_request(),
        status=header.status,
        reward=header.read_reward(),
        passed=header.passed,
        tokens=len(arrays.token_ids),
        sampled=int(np.count_nonzero(arrays.loss_mask.view(np.bool_))),
        segments=len(header.segments),
        longest=header.longest_sequence,
        largest_token=int(np.maximum.reduce(arrays.token_ids, initial=-1)),
        largest_logprob=float(np.maximum.reduce(arrays.logprobs, initial=0.0)),
        largest_reward=header.largest_reward,
        versions=arrays.sampled_versions(),
        digest=frames_digest(frames),
    )


def decode_memory_bound(max_bytes: int) -> int:
    """Return the most memory, in bytes, that decoding or inspecting any message of ``max_bytes`` takes."""
    return _JSON_GROWTH * _header_bound(max_bytes)


def pack_trajectory(trajectory: Trajectory) -> bytes:
    """Encode ``trajectory`` and pack its frames into one blob."""
    return pack_frames(encode_trajectory(trajectory))


def unpack_trajectory(blob: Frame, *, max_bytes: int = MAX_TRAJECTORY_BYTES) -> Trajectory:
    """Unpack the frames of ``blob`` and decode them."""
    return decode_trajectory(unpack_frames(blob, max_bytes=max_bytes), max_bytes=max_bytes)


def inspect_blob(blob: Frame) -> TrajectorySummary:
    """Unpack the frames of ``blob`` and inspect them."""
    return inspect_frames(unpack_frames(blob), max_bytes=MAX_TRAJECTORY_BYTES)


def _header_bound(max_bytes: int) -> int:
    return max(_HEADER_BYTES, max_bytes // _HEADER_SHARE)


def _checked(frames: Sequence[Frame], max_bytes: int) -> tuple[TrajectoryHeader, TrajectoryArrays]:
    total = payload_size(frames)
    if total > max_bytes:
        raise CodecError(f"trajectory of {total} bytes is above the limit of {max_bytes}")
    if frames and len(frames[0]) > _header_bound(max_bytes):
        raise CodecError(f"header of {len(frames[0])} bytes is above its share of {max_bytes}")
    header = read_header(unseal(frames))
    if not header.segments:
        raise CodecError("a trajectory has at least one segment")
    arrays = view_arrays(frames[1:], header.tokens)
    arrays.check_invariants()
    return header, arrays


def _segments(header: TrajectoryHeader, arrays: TrajectoryArrays) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    start = 0
    for spec in header.segments:
        own = arrays.segment(start, spec.length)
        start += spec.length
        segments.append(
            Segment(
                token_ids=own.token_ids,
                loss_mask=own.loss_mask,
                logprobs=own.logprobs,
                versions=own.versions,
                turns=spec.read_turns(),
                parent=spec.parent,
                offset=spec.offset,
            )
        )
    return tuple(segments)


__all__ = [
    "MAX_TRAJECTORY_BYTES",
    "TRAJECTORY_SCHEMA",
    "CodecError",
    "Frame",
    "TrajectorySummary",
    "decode_memory_bound",
    "decode_trajectory",
    "encode_trajectory",
    "frames_digest",
    "inspect_blob",
    "inspect_frames",
    "pack_frames",
    "pack_trajectory",
    "payload_size",
    "unpack_frames",
    "unpack_trajectory",
]
