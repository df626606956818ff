"""What changed between two versions of the same bytes, as a block that says whether it can be trusted.

A block holds the elements that differ: their gaps, and their exclusive or with what stood there before, both byte plane
by byte plane and compressed.  After a step of AdamW in bfloat16 that is shorter than the whole exclusive or, and than
indices and new values (docs/benchmarks.md).  Against an empty base every element that is not zero differs, so a whole
file is a block too.

A block carries checksums of itself, of its base and of its result (xxh3: against damage, not against forgery), so
:func:`apply` gives the very bytes that :func:`encode` was given, or raises.  Pure: bytes in, bytes out.
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
"""Most that a block's base or result may have, so that no header makes :func:`apply` ask for more memory."""
ELEMENT_WIDTHS = (1, 2, 4, 8)
"""Bytes that an element can have."""
_MAGIC = b"LSD1"
_HEAD = struct.Struct("<4s I I I I I Q Q")
"""Magic; bytes of base, result and one element; elements that differ; bytes of their gaps; xxh3 of base and result."""
_SEAL = struct.Struct("<Q")
"""xxh3 of all before it."""
_LEVEL = 1
_GAP = np.dtype("<u4")


class DeltaError(InfraError):
    """A block could not be applied; nothing was made of it."""


class DamagedDeltaError(DeltaError):
    """The block is not what was encoded."""


class DeltaBaseMismatchError(DeltaError):
    """The block is sound, and was made for another base than it was given."""


def encode_delta(base: DeltaBytes, new: DeltaBytes, width: int) -> bytes:
    """The block that makes ``new`` of ``base``, whose elements have ``width`` bytes (1, 2, 4 or 8).  Any bytes will do;
    where both are arrays of such elements the block is shortest.  Raises ValueError for another width, and for more
    than :data:`MAX_BYTES`."""
    if width not in ELEMENT_WIDTHS or max(len(base), len(new)) > MAX_DELTA_BYTES:
        raise ValueError(f"no block of elements of {width} bytes, or of {max(len(base), len(new))} bytes in all")
    differing = _elements(base, len(new), width) ^ _elements(new, len(new), width)
    places = np.flatnonzero(differing).astype(_GAP)
    gaps = np.diff(places, prepend=_GAP.type(0))
    gaps[1:] -= 1
    compress = zstandard.ZstdCompressor(level=_LEVEL).compress
    packed_gaps, packed_values = compress(_planes(gaps)), compress(_planes(differing[places]))
    head = _HEAD.pack(
        _MAGIC, len(base), len(new), width, len(places), len(packed_gaps), _checksum(base), _checksum(new)
    )
    body = b"".join((head, packed_gaps, packed_values))
    return body + _SEAL.pack(_checksum(body))


def apply_delta(base: DeltaBytes, block: DeltaBytes) -> bytes:
    """What ``block`` makes of ``base``.  Raises :class:`DamagedDelta` or :class:`OtherBase`, and nothing else, whatever
    the bytes are."""
    view = memoryview(block)
    if len(view) < _HEAD.size + _SEAL.size:
        raise DamagedDeltaError(f"a block of {len(view)} bytes is cut off")
    body, (seal,) = view[: -_SEAL.size], _SEAL.unpack(view[-_SEAL.size :])
    head = cast("tuple[bytes, int, int, int, int, int, int, int]", _HEAD.unpack_from(body))
    magic, base_bytes, new_bytes, width, count, gap_bytes, base_sum, new_sum = head
    packed = body[_HEAD.size :]
    if magic != _MAGIC or _checksum(body) != seal or width not in ELEMENT_WIDTHS or gap_bytes > len(packed):
        raise DamagedDeltaError("a block is not what was encoded: its checksum differs")
    elements = -(-new_bytes // width)
    if new_bytes > MAX_DELTA_BYTES or count > elements:
        raise DamagedDeltaError(f"a block says that it holds {count} elements of {new_bytes} bytes")
    if (len(base), _checksum(base)) != (base_bytes, base_sum):
        raise DeltaBaseMismatchError("a block was made for other bytes than those that are here")
    gaps = _unpacked(packed[:gap_bytes], count, _GAP).astype(np.int64)
    places = gaps.cumsum() + np.arange(count)
    if count and places[-1] >= elements:
        raise DamagedDeltaError("a block changes what lies behind its end")
    result = _elements(base, new_bytes, width)
    result[places] ^= _unpacked(packed[gap_bytes:], count, result.dtype)
    new = result.tobytes()[:new_bytes]
    if _checksum(new) != new_sum:
        raise DamagedDeltaError("a block did not make what it was made of")
    return new


def _elements(data: DeltaBytes, size: int, width: int) -> NDArray[np.unsignedinteger]:
    """A copy of the first ``size`` bytes, zeros where there are fewer and up to a whole element."""
    held = np.zeros(size + -size % width, np.uint8)
    taken = min(size, len(data))
    held[:taken] = np.frombuffer(data, np.uint8, taken)
    return held.view(f"<u{width}")


def _planes(array: NDArray[np.unsignedinteger]) -> bytes:
    """All first bytes, then all second bytes, and so on."""
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
