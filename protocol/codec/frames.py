"""The frames of a trajectory: sealed header, sizes, checksum."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias, cast

import xxhash

from protocol.codec.errors import CodecError

Frame: TypeAlias = bytes | memoryview

TRAJECTORY_SCHEMA = 4
ARRAY_COUNT = 4
FRAME_COUNT = 1 + ARRAY_COUNT
_MAGIC = b"LSTJ"
_PREFIX = struct.Struct("<4sHH16s")
_LENGTHS = struct.Struct(f"<{FRAME_COUNT}Q")


def seal(header: bytes, arrays: Sequence[Frame]) -> bytes:
    """Return the first frame: magic, schema, checksum over everything, then ``header`` (JSON)."""
    return _PREFIX.pack(_MAGIC, TRAJECTORY_SCHEMA, 0, _checksum(header, arrays)) + header


def unseal(frames: Sequence[Frame]) -> memoryview:
    """Return the header's JSON.  Raises CodecError unless ``frames`` are exactly those that were sealed."""
    if len(frames) != FRAME_COUNT:
        raise CodecError(f"{len(frames)} frames instead of {FRAME_COUNT}")
    expected = frames_digest(frames)
    header = memoryview(frames[0])[_PREFIX.size :]
    if _checksum(header, frames[1:]) != expected:
        raise CodecError("checksum does not match")
    return header


def frames_digest(frames: Sequence[Frame]) -> bytes:
    """Return the checksum in the header: equal for equal trajectories.  Raises CodecError for another format."""
    if not frames or len(frames[0]) < _PREFIX.size:
        raise CodecError("header is too short")
    magic, schema, reserved, checksum = cast("tuple[bytes, int, int, bytes]", _PREFIX.unpack_from(frames[0]))
    if magic != _MAGIC or reserved != 0:
        raise CodecError("not a trajectory")
    if schema != TRAJECTORY_SCHEMA:
        raise CodecError(
            f"trajectory schema {schema}; this longshore reads {TRAJECTORY_SCHEMA}: run the same version on all nodes"
        )
    return checksum


def payload_size(frames: Sequence[Frame]) -> int:
    """Return the bytes of ``frames``, the unit of credit, reservations and budgets."""
    return sum(map(len, frames))


def _checksum(header: Frame, arrays: Sequence[Frame]) -> bytes:
    """Return an XXH3-128 checksum, which detects damage by disks and networks; authentication is up to CURVE keys."""
    state = xxhash.xxh3_128(_LENGTHS.pack(len(header), *map(len, arrays)), seed=TRAJECTORY_SCHEMA)
    state.update(header)
    for frame in arrays:
        state.update(frame)
    return state.digest()
