"""The frames of a trajectory: the sealed header, the sizes, the checksum, and one blob of them all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias, cast

import xxhash

from protocol.codec.errors import CodecError

Frame: TypeAlias = bytes | memoryview

SCHEMA = 3
ARRAYS = 4
_FRAMES = 1 + ARRAYS
_ALIGNMENT = 8
_MAGIC = b"LSTJ"
_PREFIX = struct.Struct("<4sHH16s")
_LENGTHS = struct.Struct(f"<{_FRAMES}Q")
_PACK_MAGIC = b"LSPK"
_PACK_HEAD = struct.Struct(f"<4sI{_FRAMES}Q")


def seal(header: bytes, arrays: Sequence[Frame]) -> bytes:
    """The first frame: magic, schema, checksum over everything, then ``header`` (JSON), filled up with spaces so that
    the arrays after it stand aligned in a blob."""
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    return _PREFIX.pack(_MAGIC, SCHEMA, 0, _checksum(header, arrays)) + header


def unseal(frames: Sequence[Frame]) -> memoryview:
    """The header's JSON.  Raises CodecError unless ``frames`` are exactly what was sealed."""
    if len(frames) != _FRAMES:
        raise CodecError(f"{len(frames)} frames instead of {_FRAMES}")
    expected = digest(frames)
    header = memoryview(frames[0])[_PREFIX.size :]
    if _checksum(header, frames[1:]) != expected:
        raise CodecError("checksum does not match")
    return header


def digest(frames: Sequence[Frame]) -> bytes:
    """The checksum that the header carries: equal for equal trajectories.  Raises CodecError for another format."""
    if not frames or len(frames[0]) < _PREFIX.size:
        raise CodecError("header is too short")
    magic, schema, reserved, checksum = cast("tuple[bytes, int, int, bytes]", _PREFIX.unpack_from(frames[0]))
    if magic != _MAGIC or reserved != 0:
        raise CodecError("not a trajectory")
    if schema != SCHEMA:
        raise CodecError(
            f"trajectory schema {schema}; this longshore reads {SCHEMA}: run the same version on all nodes"
        )
    return checksum


def payload_size(frames: Sequence[Frame]) -> int:
    """Bytes that ``frames`` take: what credit, reservations and budgets count."""
    return sum(map(len, frames))


def pack(frames: Sequence[Frame]) -> bytes:
    """One blob: magic, count, lengths, then the frames."""
    return b"".join([_PACK_HEAD.pack(_PACK_MAGIC, len(frames), *map(len, frames)), *frames])


def unpack(blob: Frame) -> list[memoryview]:
    """The frames of ``blob``, as views of it.  Raises CodecError."""
    view = memoryview(blob)
    if len(view) < _PACK_HEAD.size:
        raise CodecError("packed blob is too short")
    magic, count, *lengths = cast("tuple[bytes, int, *tuple[int, ...]]", _PACK_HEAD.unpack_from(view))
    if magic != _PACK_MAGIC or count != _FRAMES:
        raise CodecError("not a packed trajectory")
    if _PACK_HEAD.size + sum(lengths) != len(view):
        raise CodecError(f"packed blob of {len(view)} bytes does not hold {sum(lengths)}")
    frames: list[memoryview] = []
    start = _PACK_HEAD.size
    for length in lengths:
        frames.append(view[start : start + length])
        start += length
    return frames


def _checksum(header: Frame, arrays: Sequence[Frame]) -> bytes:
    """XXH3-128: finds what disks and networks do to bytes; who may send them is a matter of keys."""
    state = xxhash.xxh3_128(_LENGTHS.pack(len(header), *map(len, arrays)), seed=SCHEMA)
    state.update(header)
    for frame in arrays:
        state.update(frame)
    return state.digest()
