"""The frames of connections, and streams of bytes that outlive lost requests.  Pure; ``main.c`` is the other end."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Self

_HEADER = struct.Struct("<cII")
MOST_FRAME_BYTES = 32 << 10
"""Most bytes of one frame's data."""


class RelayProtocolError(Exception):
    """What comes from the sandbox is no stream of a relay."""


class FrameKind(Enum):
    OPENED = b"O"
    """A program of the sandbox has made the connection."""
    DATA = b"D"
    ENDED = b"E"
    """No more data comes in this direction."""
    BROKEN = b"R"
    """The connection is gone."""


class Frame(NamedTuple):
    """An event of one connection."""

    kind: FrameKind
    connection: int
    data: bytes = b""

    def encode(self) -> bytes:
        return _HEADER.pack(self.kind.value, self.connection, len(self.data)) + self.data


def data_frames(connection: int, data: bytes) -> Iterator[Frame]:
    """Divide a connection's data into frames."""
    for at in range(0, len(data), MOST_FRAME_BYTES):
        yield Frame(FrameKind.DATA, connection, data[at : at + MOST_FRAME_BYTES])


class FrameReader:
    """Reads frames from a stream, which comes in parts of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete.  Raises RelayProtocolError."""
        self._rest += data
        found, at = list[Frame](), 0
        while len(self._rest) - at >= _HEADER.size:
            kind, connection, size = _HEADER.unpack_from(self._rest, at)
            if size > MOST_FRAME_BYTES:
                raise RelayProtocolError(f"a frame of {size} bytes")
            if len(self._rest) - at < _HEADER.size + size:
                break
            try:
                read = FrameKind(kind)
            except ValueError as error:
                raise RelayProtocolError(f"a frame of kind {kind!r}") from error
            at += _HEADER.size
            found.append(Frame(read, connection, bytes(self._rest[at : at + size])))
            at += size
        del self._rest[:at]
        return found


class StreamPart(NamedTuple):
    """Bytes of a stream, and the place of their first one in it."""

    offset: int
    data: bytes


class SentStream:
    """A stream to the other end, whose bytes are kept until they have arrived."""

    def __init__(self) -> None:
        self._arrived = 0
        self._kept = bytearray()

    def append(self, data: bytes) -> None:
        self._kept += data

    @property
    def size(self) -> int:
        """Bytes that have not arrived, as far as is known."""
        return len(self._kept)

    def next_part(self, most_bytes: int) -> StreamPart:
        """Return the first bytes that have not arrived."""
        return StreamPart(self._arrived, bytes(self._kept[:most_bytes]))

    def acknowledge(self, arrived: int) -> None:
        """Forget the bytes before ``arrived``, which an older reply may name too.  Raises RelayProtocolError for bytes
        that were never sent."""
        if arrived > self._arrived + len(self._kept):
            raise RelayProtocolError("it has taken more than was sent")
        if arrived > self._arrived:
            del self._kept[: arrived - self._arrived]
            self._arrived = arrived


class ReceivedStream:
    """A stream from the other end, parts of which may come twice."""

    def __init__(self) -> None:
        self.position = 0
        """Bytes that have come so far."""

    def take(self, part: StreamPart) -> bytes:
        """Return the bytes of a part that are new.  Raises RelayProtocolError for a part that leaves some out."""
        if part.offset > self.position:
            raise RelayProtocolError("it has left out a part of its stream")
        new = part.data[self.position - part.offset :]
        self.position += len(new)
        return new


class RelayReply(NamedTuple):
    """The answer to an exchange."""

    incarnation: int
    """Number of the program that answered; another number than before means that all connections have ended."""
    taken: int
    """Bytes that it has received."""
    part: StreamPart
    """The next bytes that it sends."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """Read the words of an answer.  Raises RelayProtocolError."""
        try:
            incarnation, taken, offset, text = words
            part = StreamPart(int(offset), base64.b64decode(text.removesuffix("="), validate=True))
            return cls(int(incarnation), int(taken), part)
        except (ValueError, binascii.Error) as error:
            raise RelayProtocolError("an answer that is none") from error
