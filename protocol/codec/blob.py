"""A trajectory's frames as one blob with compressed arrays.

In memory and on the wire a frame is an array and nothing is copied.  On disk the number of bytes matters, and the
arrays compress well: versions and mask come in runs, and only sampled tokens have log-probabilities.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import lz4.block  # pyright: ignore[reportMissingTypeStubs]  it has none

from protocol.codec.errors import CodecError
from protocol.codec.frames import FRAME_COUNT, Frame

MAX_TRAJECTORY_BYTES = 256 * 1024 * 1024
"""Default limit of a blob's uncompressed frames; a run's own limit is smaller and comes from its configuration."""
_MAGIC = b"LSP2"
_HEAD = struct.Struct(f"<4sI{FRAME_COUNT}Q{FRAME_COUNT}Q")
_ALIGNMENT = 8
_lz4: Any = lz4.block


def pack_frames(frames: Sequence[Frame]) -> bytes:
    """Return one blob: magic, count, frame lengths, stored lengths, then the frames, each aligned to eight bytes.

    The header is stored as it is, an array as an LZ4 block if that is shorter.
    """
    header, *arrays = frames
    stored = [header, *map(_compressed, arrays)]
    parts: list[Frame] = [_HEAD.pack(_MAGIC, len(frames), *map(len, frames), *map(len, stored))]
    for part in stored:
        parts += (part, bytes(-len(part) % _ALIGNMENT))
    return b"".join(parts)


def unpack_frames(blob: Frame, *, max_bytes: int = MAX_TRAJECTORY_BYTES) -> list[Frame]:
    """Return the frames of ``blob``, at most ``max_bytes`` in total; uncompressed ones are views.

    Raises CodecError, and nothing else, for any bytes.
    """
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
        frames.append(_decompressed(view[start : start + stored], length))
        start += stored + -stored % _ALIGNMENT
    return frames


def _compressed(array: Frame) -> Frame:
    block: bytes = _lz4.compress(array, store_size=False)
    return block if len(block) < len(array) else array


def _decompressed(stored: memoryview, length: int) -> Frame:
    if len(stored) == length:
        return stored
    try:
        frame: bytes = _lz4.decompress(stored, uncompressed_size=length)
    except (_lz4.LZ4BlockError, ValueError, OverflowError) as error:
        raise CodecError(f"packed frame: {error}") from None
    if len(frame) != length:
        raise CodecError(f"packed frame of {len(frame)} bytes instead of {length}")
    return frame
