"""Compressed deltas between two versions of the same bytes, with checksums.

A block holds the elements that differ: the gaps between them, and the XOR of their old and new values, both split into
byte planes and compressed.  After an AdamW step in bfloat16 this is smaller than the full XOR, and than indices with
new values (docs/benchmarks.md).  Against an empty base every non-zero element differs, so a block can also hold a whole
file.

A block carries checksums of itself, of its base and of its result (xxh3: against damage, not against forgery), so
:func:`apply_delta` returns exactly the bytes that :func:`encode_delta` was given, or raises.  Pure: bytes in, bytes
out.
"""

from __future__ import annotations

import struct
from typing import TypeAlias, cast

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from protocol.errors import InfraError

DeltaBytes: TypeAlias = "bytes | memoryview"

MAX_DELTA_BYTES = 1 << 26
"""Most bytes of a block's base or result, so that no header makes :func:`apply_delta` allocate more memory."""
ELEMENT_WIDTHS = (1, 2, 4, 8)
"""Valid sizes of an element, in bytes."""
_MAGIC = b"LSD1"
_HEAD = struct.Struct("<4s I I I I I Q Q")
"""Magic; bytes of base, result and one element; number of differing elements; bytes of the packed gaps; xxh3 of base
and result."""
_SEAL = struct.Struct("<Q")
"""xxh3 of all bytes before it."""
_LEVEL = 1
_GAP = np.dtype("<u4")


class DeltaError(InfraError):
    """A block could not be applied."""


class DamagedDeltaError(DeltaError):
    """The block's own checksum does not match."""


class DeltaBaseMismatchError(DeltaError):
    """The block is intact but was made for another base."""


def encode_delta(base: DeltaBytes, new: DeltaBytes, width: int) -> bytes:
    """Return the block that turns ``base`` into ``new``; elements have ``width`` bytes (1, 2, 4 or 8).

    Any bytes are allowed; the block is smallest if both are arrays of such elements.  Raises ValueError for another
    width, and for more than :data:`MAX_DELTA_BYTES`.
    """
    if width not in ELEMENT_WIDTHS or max(len(base), len(new)) > MAX_DELTA_BYTES:
        raise ValueError(f"no block of elements of {width} bytes, or of {max(len(base), len(new))} bytes in all")
    differing = _elements(base, len(new), width) ^ _elements(new, len(new), width)
    indices = np.flatnonzero(differing).astype(_GAP)
    gaps = np.diff(indices, prepend=_GAP.type(0))
    gaps[1:] -= 1
    compress = zstandard.ZstdCompressor(level=_LEVEL).compress
    packed_gaps, packed_values = compress(_planes(gaps)), compress(_planes(differing[indices]))
    head = _HEAD.pack(
        _MAGIC, len(base), len(new), width, len(indices), len(packed_gaps), _checksum(base), _checksum(new)
    )
    body = b"".join((head, packed_gaps, packed_values))
    return body + _SEAL.pack(_checksum(body))


def apply_delta(base: DeltaBytes, block: DeltaBytes) -> bytes:
    """Apply ``block`` to ``base`` and return the result.

    Raises :class:`DamagedDeltaError` or :class:`DeltaBaseMismatchError`, and nothing else, for any bytes.
    """
    view = memoryview(block)
    if len(view) < _HEAD.size + _SEAL.size:
        raise DamagedDeltaError(f"a block of {len(view)} bytes is cut off")
    body, (seal,) = view[: -_SEAL.size], _SEAL.unpack(view[-_SEAL.size :])
    head = cast("tuple[bytes, int, int, int, int, int, int, int]", _HEAD.unpack_from(body))
    magic, base_bytes, new_bytes, width, count, gap_bytes, base_sum, new_sum = head
    packed = body[_HEAD.size :]
    if magic != _MAGIC or _checksum(body) != seal or width not in ELEMENT_WIDTHS or gap_bytes > len(packed):
        raise DamagedDeltaError("the block's checksum does not match")
    elements = -(-new_bytes // width)
    if new_bytes > MAX_DELTA_BYTES or count > elements:
        raise DamagedDeltaError(f"the block claims {count} elements in {new_bytes} bytes")
    if (len(base), _checksum(base)) != (base_bytes, base_sum):
        raise DeltaBaseMismatchError("the block was made for another base")
    gaps = _unpacked(packed[:gap_bytes], count, _GAP).astype(np.int64)
    indices = gaps.cumsum() + np.arange(count)
    if count and indices[-1] >= elements:
        raise DamagedDeltaError("the block changes elements beyond its end")
    result = _elements(base, new_bytes, width)
    result[indices] ^= _unpacked(packed[gap_bytes:], count, result.dtype)
    new = result.tobytes()[:new_bytes]
    if _checksum(new) != new_sum:
        raise DamagedDeltaError("the block's result has the wrong checksum")
    return new


def _elements(data: DeltaBytes, size: int, width: int) -> NDArray[np.unsignedinteger]:
    """Return a copy of the first ``size`` bytes as elements, padded with zeros."""
    held = np.zeros(size + -size % width, np.uint8)
    taken = min(size, len(data))
    held[:taken] = np.frombuffer(data, np.uint8, taken)
    return held.view(f"<u{width}")


def _planes(array: NDArray[np.unsignedinteger]) -> bytes:
    """Return the array's bytes by plane: all first bytes, then all second bytes, and so on."""
    return array.view(np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _unpacked(packed: DeltaBytes, count: int, dtype: np.dtype[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    size = count * dtype.itemsize
    try:
        if zstandard.frame_content_size(packed) != size:
            raise DamagedDeltaError(f"a block does not hold {count} elements")
        raw = zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise DamagedDeltaError(f"a block cannot be read: {error}") from None
    return np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, count).T.copy().view(dtype).reshape(count)


def _checksum(data: DeltaBytes) -> int:
    return xxhash.xxh3_64_intdigest(data)
