"""The frames between a session and PID 1 (``init/main.c`` is the other end): bytes in, values out, no I/O.

A frame is type u8, length u32 LE, payload; a frame to PID 1 has a CRC-32 of these before its payload, and a new stream
to PID 1 begins with the container's key (:mod:`sandbox.session.init_command`). Every request's payload begins with its
id, u32 LE; a request about a shell or a terminal continues with its slot, u16 LE.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from sandbox.docker.stream import StreamProtocolError

PROTOCOL = 6
SLOTS = 32
"""Most shells and terminals of one session; the first is the shell that exists from the start."""
MAIN_SLOT = 0
CHILD_SLOT = 0xFFFF
"""Stands for the child process in an interrupt."""
MAX_FRAME_BYTES = 1 << 20
FILE_CHUNK_BYTES = 256 << 10
MAX_COMMAND_BYTES = MAX_FRAME_BYTES - 1024
MAX_ROWS = 1000
"""Most rows, and most columns, of a terminal."""
NONCE_BYTES = 16
KEY_BYTES = 32
NEW_CLIENT = (1 << 64) - 1
"""The position of a client that has received nothing and wants nothing that was sent before."""
_HEADER = struct.Struct("<cI")
_SUM = struct.Struct("<I")
_SYNC = struct.Struct("<BIQ")


class WriteFlag(IntFlag):
    """How a file is written. Links in the last component of the path are never followed."""

    NONE = 0
    APPEND = 1
    REPLACE = 2
    """Remove what stands there first; a folder of any size is renamed to a name beside its own.

    A folder that cannot be renamed (part of the image, a mount point) is emptied in short steps: ETIME until that is
    done. The folders above then belong to root, and nobody else may rename files of others in them.
    """
    CLEAR = 4
    """With REPLACE: empty a folder instead of renaming it."""


class DeathCause(IntEnum):
    """Why the process of a shell or a terminal ended."""

    BY_ITSELF = 0
    INTERRUPTED = 1
    """This side asked for it."""
    SPURIOUS_STATUS = 2
    """It reported a status that nobody had asked for: the agent wrote to its status pipe."""
    NO_FORK = 3
    """It could not be started: the container had no process or memory left."""


class ByeReason(IntEnum):
    """Why PID 1 exited."""

    QUIT = 0
    DEADLINE = 1
    PROTOCOL = 2
    """It received an invalid frame."""


class SlotKind(IntEnum):
    """What a slot holds."""

    SHELL = 1
    TERMINAL = 2


@dataclass(frozen=True, slots=True)
class Spool:
    """A file to which PID 1 writes the whole of an output. An existing file is never overwritten."""

    path: str
    after_bytes: int
    """The file is made only for an output longer than this."""
    most_bytes: int = 64 << 20

    def encode(self) -> bytes:
        """Encode it for a frame. Raises ValueError for an invalid path."""
        name = self.path.encode()
        if b"\0" in name or len(name) > 500 or not self.path.startswith("/"):
            raise ValueError(f"not an absolute path of at most 500 bytes: {self.path!r}")
        return struct.pack("<IIH", self.after_bytes, self.most_bytes, len(name)) + name


_NO_SPOOL = struct.pack("<IIH", 0, 0, 0)


def _frame(kind: bytes, request: int, payload: bytes = b"") -> bytes:
    head, body = _HEADER.pack(kind, 4 + len(payload)), struct.pack("<I", request) + payload
    return head + _SUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def _slot_frame(kind: bytes, request: int, slot: int, payload: bytes = b"") -> bytes:
    return _frame(kind, request, struct.pack("<H", slot) + payload)


def _strings(cwd: str, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    strings = [cwd, *argv, *(f"{key}={value}" for key, value in env.items())]
    if any("\0" in each for each in strings):
        raise ValueError("no NUL in arguments or environment")
    body = b"".join(each.encode(errors="surrogateescape") + b"\0" for each in strings)
    if not 1 <= len(argv) <= 256 or len(env) > 256 or len(body) > MAX_COMMAND_BYTES:
        raise ValueError("1 to 256 arguments, at most 256 variables, and at most 1 MiB of both")
    return struct.pack("<HH", len(argv), len(env)) + body


def _path(path: str) -> bytes:
    name = path.encode(errors="surrogateescape")
    if b"\0" in name:
        raise ValueError(f"no NUL in a path: {path!r}")
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    if len(name) > 4096:
        raise ValueError(f"a path of more than 4096 bytes: {path[:40]!r}…")
    return name


def run_frame(request: int, command: bytes, slot: int = MAIN_SLOT, spool: Spool | None = None) -> bytes:
    """Run a command in a shell, which is opened if needed. It has no NUL and at most ``MAX_COMMAND_BYTES``."""
    if b"\0" in command or len(command) > MAX_COMMAND_BYTES:
        raise ValueError("a command has no NUL byte and at most 1 MiB")
    return _slot_frame(b"R", request, slot, (spool.encode() if spool else _NO_SPOOL) + command)


def terminal_frame(
    request: int,
    slot: int,
    *,
    cwd: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    rows: int,
    columns: int,
    spool: Spool | None = None,
) -> bytes:
    """Start a process on a pseudo-terminal in a free slot; ``env`` is added to the container's own variables."""
    size = _size(rows, columns)
    return _slot_frame(b"P", request, slot, size + (spool.encode() if spool else _NO_SPOOL) + _strings(cwd, argv, env))


def type_frame(request: int, slot: int, data: bytes) -> bytes:
    """Type bytes into a terminal."""
    if len(data) > MAX_COMMAND_BYTES:
        raise ValueError("at most 1 MiB at once")
    return _slot_frame(b"T", request, slot, data)


def resize_frame(request: int, slot: int, rows: int, columns: int) -> bytes:
    """Resize a terminal."""
    return _slot_frame(b"Z", request, slot, _size(rows, columns))


def _size(rows: int, columns: int) -> bytes:
    if not (0 < rows <= MAX_ROWS and 0 < columns <= MAX_ROWS):
        raise ValueError(f"a terminal has 1 to {MAX_ROWS} rows and columns, not {rows} and {columns}")
    return struct.pack("<HH", rows, columns)


def interrupt_frame(request: int, slot: int = MAIN_SLOT) -> bytes:
    """Kill a slot's process and what its running command started."""
    return _slot_frame(b"I", request, slot)


def close_frame(request: int, slot: int) -> bytes:
    """Interrupt, and free the slot."""
    return _slot_frame(b"C", request, slot)


def write_frame(request: int, path: str, data: bytes, *, mode: int = 0o644, flags: WriteFlag = WriteFlag.NONE) -> bytes:
    """Write one chunk of a file; a path that ends in ``/`` makes a directory."""
    name = _path(path)
    return _frame(b"W", request, struct.pack("<IBH", mode, flags, len(name)) + name + data)


def read_frame(request: int, path: str, offset: int, most: int) -> bytes:
    """Ask for a piece of a regular file; :class:`FileData` is the answer."""
    return _frame(b"F", request, struct.pack("<QI", offset, most) + _path(path))


def extend_frame(request: int, ms: int) -> bytes:
    """Move the deadline to ``ms`` from now, or to the maximum if that comes first."""
    return _frame(b"D", request, struct.pack("<I", min(ms, 0xFFFFFFFF)))


def kill_all_frame(request: int) -> bytes:
    """Kill and reap every process but PID 1."""
    return _frame(b"K", request)


def child_frame(request: int, cwd: str, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Start one child with exactly these arguments and this environment."""
    return _frame(b"G", request, _strings(cwd, argv, env))


def sync_frame(request: int, nonce: bytes, heard: int) -> bytes:
    """Ask for what follows position ``heard``; it comes after a :class:`StreamResumed`, which begins with
    :func:`sync_marker`.

    A new client's later requests have greater numbers than ``request``.
    """
    return _frame(b"Y", request, nonce + struct.pack("<Q", heard))


def sync_marker(nonce: bytes) -> bytes:
    """Return the first bytes of PID 1's answer to :func:`sync_frame`.

    No program inside can know the nonce, so that output for an earlier client cannot imitate them.
    """
    return _HEADER.pack(b"Y", NONCE_BYTES + _SYNC.size) + nonce


def heard_frame(position: int) -> bytes:
    """Tell PID 1 that everything before this position was received and need not be kept."""
    return _frame(b"N", 0, struct.pack("<Q", position))


def request_of(frame: bytes) -> int:
    """Return the request number of a frame to PID 1."""
    start = _HEADER.size + _SUM.size
    return int.from_bytes(frame[start : start + 4], "little")


def quit_frame(request: int) -> bytes:
    """End the container."""
    return _frame(b"Q", request)


@dataclass(frozen=True, slots=True)
class InitHello:
    """PID 1's first message."""

    protocol: int


@dataclass(frozen=True, slots=True)
class StreamResumed:
    """The beginning of a new stream."""

    protocol: int
    last_request: int
    """The last request that PID 1 has received from this client."""
    position: int
    """Position of what follows, in bytes of everything that PID 1 ever sent."""


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
    """Bytes of the command's output that are in its file; 0 for no file."""
    cwd: str


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """The process of a slot has ended."""

    slot: int
    request: int
    """The command that was running; 0 for none."""
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
    """A piece of a file, or the errno of why there is none."""

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
    """The running command, or the last one."""
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


def _grade_exit(payload: bytes) -> ChildExit:
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
    b"E": _grade_exit,
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
    """Cuts a byte stream into frames. With a ``marker``, everything before it is for another client and is skipped."""

    def __init__(self, marker: bytes = b"") -> None:
        self._buffer = bytearray()
        self._marker = marker
        self.position = 0
        """Position after the last frame returned, in bytes of everything that PID 1 ever sent."""

    def feed(self, data: bytes) -> Iterator[InitMessage]:
        """Take bytes and yield the messages that are complete. Raises StreamProtocolError."""
        self._buffer += data
        at = 0
        try:
            if self._marker and not self._synced():
                return
            while len(self._buffer) - at >= _HEADER.size:
                kind, length = _HEADER.unpack_from(self._buffer, at)
                if length > MAX_FRAME_BYTES:
                    raise StreamProtocolError(f"frame of {length} bytes")
                end = at + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(self._buffer[at + _HEADER.size : end])
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
