"""The frames between a session and PID 1 (``init/init.c`` is the other end), and Docker's stream framing around them.

A frame is type u8, length u32 LE, payload.  Every request's payload begins with its id, u32 LE.  Pure: bytes in,
values out, no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

PROTOCOL = 1
MAX_FRAME_BYTES = 1 << 20
FILE_CHUNK_BYTES = 256 << 10
MAX_COMMAND_BYTES = MAX_FRAME_BYTES - 16
_HEADER = struct.Struct("<cI")
_DOCKER_HEADER = struct.Struct(">BxxxI")
_MAX_DOCKER_CHUNK_BYTES = 16 << 20


class WireError(Exception):
    """The other end does not speak this protocol."""


class WriteFlag(IntFlag):
    """How a file is written.  Links in the last place of the path are never followed."""

    NONE = 0
    APPEND = 1
    REPLACE = 2
    """Remove whatever stands there first, a directory tree too."""


class Death(IntEnum):
    """Why a shell ended."""

    BY_ITSELF = 0
    INTERRUPTED = 1
    """This side asked for it."""
    SPURIOUS_STATUS = 2
    """It reported a status that nobody had asked for: the agent wrote to its status pipe."""
    NO_FORK = 3
    """None could be started: no process or memory left in the container."""


class ByeReason(IntEnum):
    QUIT = 0
    DEADLINE = 1
    PROTOCOL = 2


def _frame(kind: bytes, request: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, 4 + len(payload)) + struct.pack("<I", request) + payload


def run(request: int, command: bytes) -> bytes:
    """Evaluate in the persistent shell.  The command has no NUL and at most ``MAX_COMMAND_BYTES``."""
    if b"\0" in command or len(command) > MAX_COMMAND_BYTES:
        raise ValueError("a command has no NUL byte and at most 1 MiB")
    return _frame(b"R", request, command)


def write(request: int, path: str, data: bytes, *, mode: int = 0o644, flags: WriteFlag = WriteFlag.NONE) -> bytes:
    """Write one chunk of a file; a path that ends in ``/`` makes a directory."""
    name = path.encode()
    if b"\0" in name or not 0 < len(name) <= 4096 or not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return _frame(b"W", request, struct.pack("<IBH", mode, flags, len(name)) + name + data)


def extend(request: int, ms: int) -> bytes:
    """Move the deadline to ``ms`` from now, or to the maximum if that comes first."""
    return _frame(b"D", request, struct.pack("<I", min(ms, 0xFFFFFFFF)))


def interrupt(request: int) -> bytes:
    """Kill the shell and what its running command started."""
    return _frame(b"I", request)


def kill_all(request: int) -> bytes:
    """Kill and reap every process but PID 1."""
    return _frame(b"K", request)


def grade(request: int, cwd: str, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Start one child with exactly these arguments and this environment."""
    strings = [cwd, *argv, *(f"{key}={value}" for key, value in env.items())]
    if any("\0" in each for each in strings):
        raise ValueError("no NUL in arguments or environment")
    body = b"".join(each.encode() + b"\0" for each in strings)
    return _frame(b"G", request, struct.pack("<HH", len(argv), len(env)) + body)


def quit_(request: int) -> bytes:
    """End the container."""
    return _frame(b"Q", request)


@dataclass(frozen=True, slots=True)
class Hello:
    protocol: int


@dataclass(frozen=True, slots=True)
class Output:
    data: bytes


@dataclass(frozen=True, slots=True)
class Status:
    request: int
    code: int
    cwd: str


@dataclass(frozen=True, slots=True)
class ShellDied:
    request: int
    """The command that was running; 0 for none."""
    code: int
    why: Death


@dataclass(frozen=True, slots=True)
class Ack:
    request: int
    error: int
    """errno, 0 for success."""
    value: int


@dataclass(frozen=True, slots=True)
class GradeOutput:
    data: bytes


@dataclass(frozen=True, slots=True)
class GradeExit:
    request: int
    code: int
    signalled: bool


@dataclass(frozen=True, slots=True)
class Bye:
    why: ByeReason


Message = Hello | Output | Status | ShellDied | Ack | GradeOutput | GradeExit | Bye


def decode(kind: int, payload: bytes) -> Message:
    """One frame from PID 1.  Raises WireError."""
    try:
        match chr(kind):
            case "O":
                return Output(payload)
            case "g":
                return GradeOutput(payload)
            case "S":
                request, code = struct.unpack_from("<Ii", payload)
                return Status(request, code, payload[8:].decode(errors="replace"))
            case "A":
                return Ack(*struct.unpack("<IiI", payload))
            case "X":
                request, code, why = struct.unpack("<IiB", payload)
                return ShellDied(request, code, Death(why))
            case "E":
                request, code, signalled = struct.unpack("<IiB", payload)
                return GradeExit(request, code, bool(signalled))
            case "H":
                return Hello(payload[0])
            case "B":
                return Bye(ByeReason(payload[0]))
            case _:
                raise WireError(f"unknown frame type {kind}")
    except (struct.error, IndexError, ValueError) as error:
        raise WireError(f"bad frame of type {chr(kind)!r}: {error}") from error


class FrameParser:
    """Cuts a byte stream into frames, wherever its chunks were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _HEADER.size:
                kind, length = _HEADER.unpack_from(self._buffer, at)
                if length > MAX_FRAME_BYTES:
                    raise WireError(f"frame of {length} bytes")
                end = at + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(self._buffer[at + _HEADER.size : end])
                at = end
                yield decode(kind[0], payload)
        finally:
            del self._buffer[:at]


class StreamChunk(NamedTuple):
    stderr: bool
    data: bytes


class DockerDemux:
    """Undoes the 8-byte headers that Docker puts around each write of a container without a TTY."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[StreamChunk]:
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _DOCKER_HEADER.size:
                kind, length = _DOCKER_HEADER.unpack_from(self._buffer, at)
                if kind > 2 or length > _MAX_DOCKER_CHUNK_BYTES:
                    raise WireError(f"not a Docker stream: {bytes(self._buffer[at : at + 8])!r}")
                end = at + _DOCKER_HEADER.size + length
                if len(self._buffer) < end:
                    return
                chunk = bytes(self._buffer[at + _DOCKER_HEADER.size : end])
                at = end
                yield StreamChunk(kind == 2, chunk)
        finally:
            del self._buffer[:at]
