"""Decodes PID 1's messages to a session, without I/O; ``init/main.c`` encodes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from sandbox.docker.stream import StreamProtocolError
from sandbox.session.init_connection.wire import FRAME_HEADER, MAX_FRAME_BYTES, NONCE_BYTES

_SYNC = struct.Struct("<BIQ")


class DeathCause(IntEnum):
    """Why the process of a shell or a terminal ended."""

    BY_ITSELF = 0
    INTERRUPTED = 1
    """The session requested it."""
    NO_FORK = 3
    """It could not be started: the container had no process or memory left."""


class ByeReason(IntEnum):
    """Why PID 1 exited."""

    QUIT = 0
    DEADLINE = 1
    PROTOCOL = 2
    """It received an invalid frame."""


class SlotKind(IntEnum):
    """Kind of process in a slot."""

    SHELL = 1
    TERMINAL = 2


def sync_marker(nonce: bytes) -> bytes:
    """Return the first bytes of PID 1's answer to :func:`~sandbox.session.init_connection.init_requests.sync_frame`.

    No program inside can know the nonce, so that output for an earlier client cannot imitate them.
    """
    return FRAME_HEADER.pack(b"Y", NONCE_BYTES + _SYNC.size) + nonce


@dataclass(frozen=True, slots=True)
class InitHello:
    """PID 1's first message."""

    protocol: int


@dataclass(frozen=True, slots=True)
class StreamResumed:
    """The beginning of a new stream."""

    protocol: int
    last_request: int
    """Id of the last request that PID 1 has received from this client."""
    position: int
    """Position of the next byte, counted over everything that PID 1 ever sent."""


@dataclass(frozen=True, slots=True)
class SlotOutput:
    """Output of a shell or a terminal."""

    slot: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandStatus:
    """A command in a shell has ended."""

    slot: int
    request: int
    code: int
    spooled: int
    """Number of bytes of the command's output in its spool file; 0 without a file."""
    cwd: str


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """The process of a slot has ended."""

    slot: int
    request: int
    """Id of the request whose command was running; 0 for none."""
    code: int
    spooled: int
    why: DeathCause


@dataclass(frozen=True, slots=True)
class InitAck:
    """The acknowledgement of a request."""

    request: int
    error: int
    """The errno, 0 for success."""
    value: int


@dataclass(frozen=True, slots=True)
class FileData:
    """A piece of a file, or the errno if it could not be read."""

    request: int
    error: int
    size: int
    """Size of the whole file."""
    data: bytes


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of a slot, which a new client receives for each."""

    slot: int
    kind: SlotKind
    running: bool
    request: int
    """Id of the request of the running or the last command."""
    code: int
    """Exit code of the last command that ended."""
    cwd: str


@dataclass(frozen=True, slots=True)
class ChildOutput:
    """Output of the child process."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The child process has ended."""

    request: int
    code: int
    signalled: bool


@dataclass(frozen=True, slots=True)
class InitBye:
    """PID 1 is about to exit."""

    why: ByeReason


InitMessage = (
    InitHello
    | StreamResumed
    | SlotOutput
    | CommandStatus
    | ProcessDied
    | InitAck
    | FileData
    | SlotState
    | ChildOutput
    | ChildExit
    | InitBye
)


SlotMessage = SlotOutput | CommandStatus | ProcessDied | SlotState
"""The messages about one shell or terminal."""


def _status(payload: bytes) -> CommandStatus:
    slot, request, code, spooled = struct.unpack_from("<HIiI", payload)
    return CommandStatus(slot, request, code, spooled, payload[14:].decode(errors="replace"))


def _died(payload: bytes) -> ProcessDied:
    slot, request, code, spooled, why = struct.unpack("<HIiIB", payload)
    return ProcessDied(slot, request, code, spooled, DeathCause(why))


def _slot_state(payload: bytes) -> SlotState:
    slot, kind, running, request, code = struct.unpack_from("<HBBIi", payload)
    return SlotState(slot, SlotKind(kind), bool(running), request, code, payload[12:].decode(errors="replace"))


def _child_exit(payload: bytes) -> ChildExit:
    request, code, signalled = struct.unpack("<IiB", payload)
    return ChildExit(request, code, bool(signalled))


_DECODERS: Mapping[bytes, Callable[[bytes], InitMessage]] = {
    b"H": lambda payload: InitHello(payload[0]),
    b"Y": lambda payload: StreamResumed(*_SYNC.unpack(payload[NONCE_BYTES:])),
    b"O": lambda payload: SlotOutput(int.from_bytes(payload[:2], "little"), payload[2:]),
    b"S": _status,
    b"X": _died,
    b"A": lambda payload: InitAck(*struct.unpack("<IiI", payload)),
    b"f": lambda payload: FileData(*struct.unpack_from("<IiQ", payload), payload[16:]),
    b"V": _slot_state,
    b"g": ChildOutput,
    b"E": _child_exit,
    b"B": lambda payload: InitBye(ByeReason(payload[0])),
}


def decode_frame(kind: bytes, payload: bytes) -> InitMessage:
    """Decode one frame from PID 1. Raises StreamProtocolError."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise StreamProtocolError(f"unknown frame type {kind!r}")
    try:
        return decoder(payload)
    except (struct.error, IndexError, ValueError) as error:
        raise StreamProtocolError(f"bad frame of type {kind!r}: {error}") from error


class FrameParser:
    """Cuts a byte stream into frames. With a ``marker``, skips everything before it: that is for another client."""

    def __init__(self, marker: bytes = b"") -> None:
        self._buffer = bytearray()
        self._marker = marker
        self.position = 0
        """Position after the last frame returned, counted over everything that PID 1 ever sent."""

    def feed(self, data: bytes) -> Iterator[InitMessage]:
        """Add received bytes and yield each message that they complete. Raises StreamProtocolError."""
        self._buffer += data
        at = 0
        try:
            if self._marker and not self._synced():
                return
            while len(self._buffer) - at >= FRAME_HEADER.size:
                kind, length = FRAME_HEADER.unpack_from(self._buffer, at)
                if length > MAX_FRAME_BYTES:
                    raise StreamProtocolError(f"frame of {length} bytes")
                end = at + FRAME_HEADER.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(self._buffer[at + FRAME_HEADER.size : end])
                message = decode_frame(kind, payload)
                self.position = message.position if isinstance(message, StreamResumed) else self.position + end - at
                at = end
                yield message
        finally:
            del self._buffer[:at]

    def _synced(self) -> bool:
        found = self._buffer.find(self._marker)
        if found < 0:
            del self._buffer[: max(0, len(self._buffer) - len(self._marker) + 1)]
            return False
        del self._buffer[:found]
        self._marker = b""
        return True
