"""Docker's framing of the output of a container without a TTY: bytes in, values out, no I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct(">BxxxI")
_MAX_CHUNK_BYTES = 16 << 20


class StreamProtocolError(Exception):
    """The other end does not follow the expected protocol."""


class StreamChunk(NamedTuple):
    """One write of the container, to standard output or to standard error."""

    stderr: bool
    data: bytes


class DockerStreamDemultiplexer:
    """Removes the 8-byte header that Docker puts before each write."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[StreamChunk]:
        """Add received bytes and yield the chunks that they complete. Raises StreamProtocolError."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _HEADER.size:
                kind, length = _HEADER.unpack_from(self._buffer, at)
                if kind > 2 or length > _MAX_CHUNK_BYTES:
                    raise StreamProtocolError(f"not a Docker stream: {bytes(self._buffer[at : at + 8])!r}")
                end = at + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                chunk = bytes(self._buffer[at + _HEADER.size : end])
                at = end
                yield StreamChunk(kind == 2, chunk)
        finally:
            del self._buffer[:at]
