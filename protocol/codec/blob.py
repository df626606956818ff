"""One blob of a trajectory's frames, with what repeats itself in its arrays compressed.

In memory and on the wire a frame is an array, and nothing is copied.  On a disk its bytes are what costs time: versions
come in runs, the mask follows them, and what was not sampled has no log-probability.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import lz4.block  # pyright: ignore[reportMissingTypeStubs]  it has none

from protocol.codec.errors import CodecError
from protocol.codec.frames import FRAME_COUNT, Frame

MAX_TRAJECTORY_BYTES = 256 * 1024 * 1024
"""Default bound of what a blob holds; a run's own bound is smaller and comes from its config."""
_MAGIC = b"LSP2"
_HEAD = struct.Struct(f"<4sI{FRAME_COUNT}Q{FRAME_COUNT}Q")
_ALIGNMENT = 8
_lz4: Any = lz4.block


def pack_frames(frames: Sequence[Frame]) -> bytes:
    """Magic, count, the frames' lengths, their lengths here, then the frames, each at a multiple of eight bytes: the
    header as it is, and of each array an LZ4 block where that is shorter."""
    header, *arrays = frames
    stored = [header, *map(_smaller, arrays)]
    parts: list[Frame] = [_HEAD.pack(_MAGIC, len(frames), *map(len, frames), *map(len, stored))]
    for part in stored:
        parts += (part, bytes(-len(part) % _ALIGNMENT))
    return b"".join(parts)


def unpack_frames(blob: Frame, *, max_bytes: int = MAX_TRAJECTORY_BYTES) -> list[Frame]:
    """The frames of ``blob``, together at most ``max_bytes``: views of it where they are in it as they were.  Raises
    CodecError, and nothing else, whatever the bytes are."""
    view = memoryview(blob)
    if len(view) < _HEAD.size:
        raise CodecError("packed blob is too short")
    magic, count, *lengths = cast("tuple[bytes, int, *tuple[int, ...]]", _HEAD.unpack_from(view))
    if magic != _MAGIC or count != FRAME_COUNT:
        raise CodecError("not a packed trajectory")
    whole, here = lengths[:FRAME_COUNT], lengths[FRAME_COUNT:]
    if sum(whole) > max_bytes:
        raise CodecError(f"trajectory of {sum(whole)} bytes is above the limit of {max_bytes}")
    if _HEAD.size + sum(length + -length % _ALIGNMENT for length in here) != len(view):
        raise CodecError(f"packed blob of {len(view)} bytes does not hold {sum(here)}")
    frames: list[Frame] = []
    start = _HEAD.size
    for length, stored in zip(whole, here, strict=True):
        frames.append(_restored(view[start : start + stored], length))
        start += stored + -stored % _ALIGNMENT
    return frames


def _smaller(array: Frame) -> Frame:
    block: bytes = _lz4.compress(array, store_size=False)
    return block if len(block) < len(array) else array


def _restored(stored: memoryview, length: int) -> Frame:
    if len(stored) == length:
        return stored
    try:
        frame: bytes = _lz4.decompress(stored, uncompressed_size=length)
    except (_lz4.LZ4BlockError, ValueError, OverflowError) as error:
        raise CodecError(f"packed frame: {error}") from None
    if len(frame) != length:
        raise CodecError(f"packed frame of {len(frame)} bytes instead of {length}")
    return frame
