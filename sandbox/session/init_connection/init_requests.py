"""Encodes a session's requests to PID 1 as frames, without I/O; ``init/main.c`` decodes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag

from sandbox.session.init_connection.wire import (
    FRAME_CHECKSUM,
    FRAME_HEADER,
    MAIN_SLOT,
    MAX_COMMAND_BYTES,
    MAX_GROUPS,
    MAX_ROWS,
)


class FileFlag(IntFlag):
    """Options for a file. Links in the last component of the path are never followed."""

    NONE = 0
    APPEND = 1
    REPLACE = 2
    """Remove an existing file or folder first; a folder of any size is renamed within its parent folder.

    A folder that cannot be renamed (part of the image, a mount point) is emptied in short steps: ETIME until that is
    done. The folders above then belong to root, and nobody else may rename files of others in them.
    """
    CLEAR = 4
    """Together with REPLACE: empty a folder instead of renaming it."""
    AS_AGENT = 8
    """Write, or read, as the agent's user (:func:`agent_user_frame`)."""


@dataclass(frozen=True, slots=True)
class ProcessUser:
    """The numbers by which the kernel knows a user.  Raises ValueError for more than ``MAX_GROUPS`` groups."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    """Supplementary groups."""

    def __post_init__(self) -> None:
        if len(self.groups) > MAX_GROUPS:
            raise ValueError(f"a user in {len(self.groups)} groups, more than {MAX_GROUPS}")

    def encode(self) -> bytes:
        """Encode it for a frame."""
        return struct.pack(f"<IIH{len(self.groups)}I", self.uid, self.gid, len(self.groups), *self.groups)


ROOT = ProcessUser()


@dataclass(frozen=True, slots=True)
class Spool:
    """A file to which PID 1 writes a command's whole output. An existing file is never overwritten."""

    path: str
    after_bytes: int
    """The file is created only for an output longer than this."""
    most_bytes: int = 64 << 20

    def encode(self) -> bytes:
        """Encode it for a frame. Raises ValueError for an invalid path."""
        name = self.path.encode()
        if b"\0" in name or len(name) > 500 or not self.path.startswith("/"):
            raise ValueError(f"not an absolute path of at most 500 bytes: {self.path!r}")
        return struct.pack("<IIH", self.after_bytes, self.most_bytes, len(name)) + name


_NO_SPOOL = struct.pack("<IIH", 0, 0, 0)


def _frame(kind: bytes, request: int, payload: bytes = b"") -> bytes:
    head, body = FRAME_HEADER.pack(kind, 4 + len(payload)), struct.pack("<I", request) + payload
    return head + FRAME_CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def _slot_frame(kind: bytes, request: int, slot: int, payload: bytes = b"") -> bytes:
    return _frame(kind, request, struct.pack("<H", slot) + payload)


def _strings(cwd: str, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    strings = [cwd, *argv, *(f"{key}={value}" for key, value in env.items())]
    if any("\0" in each for each in strings):
        raise ValueError("no NUL in arguments or environment")
    body = b"".join(each.encode(errors="surrogateescape") + b"\0" for each in strings)
    if not 1 <= len(argv) <= 256 or len(env) > 256 or len(body) > MAX_COMMAND_BYTES:
        raise ValueError(f"1 to 256 arguments, at most 256 variables, and at most {MAX_COMMAND_BYTES:,} bytes of both")
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
    """Run a command in a shell, which is opened if needed.

    Raises ValueError for a command with a NUL byte or of more than ``MAX_COMMAND_BYTES``.
    """
    if b"\0" in command or len(command) > MAX_COMMAND_BYTES:
        raise ValueError(f"a command has no NUL byte and at most {MAX_COMMAND_BYTES:,} bytes")
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
        raise ValueError(f"at most {MAX_COMMAND_BYTES:,} bytes at once")
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
    """Interrupt a slot and free it."""
    return _slot_frame(b"C", request, slot)


def write_frame(request: int, path: str, data: bytes, *, mode: int = 0o644, flags: FileFlag = FileFlag.NONE) -> bytes:
    """Write one chunk of a file; a path that ends in ``/`` makes a directory."""
    name = _path(path)
    return _frame(b"W", request, struct.pack("<IBH", mode, flags, len(name)) + name + data)


def read_frame(request: int, path: str, offset: int, most: int, flags: FileFlag = FileFlag.NONE) -> bytes:
    """Ask for a piece of a regular file; the answer is a :class:`.init_messages.FileData`."""
    return _frame(b"F", request, struct.pack("<QIB", offset, most, flags) + _path(path))


def extend_frame(request: int, ms: int) -> bytes:
    """Move the deadline to ``ms`` from now, or to the maximum if that comes first."""
    return _frame(b"D", request, struct.pack("<I", min(ms, 0xFFFFFFFF)))


def kill_all_frame(request: int) -> bytes:
    """Kill and reap every process but PID 1."""
    return _frame(b"K", request)


def kill_tests_frame(request: int) -> bytes:
    """Kill every process of the tests, and none of the agent's."""
    return _frame(b"X", request)


def child_frame(request: int, cwd: str, argv: Sequence[str], env: Mapping[str, str], user: ProcessUser = ROOT) -> bytes:
    """Start one child of ``user`` with exactly these arguments and this environment."""
    return _frame(b"G", request, user.encode() + _strings(cwd, argv, env))


def agent_user_frame(request: int, user: ProcessUser, home: str) -> bytes:
    """Make later shells and terminals, and shells that run no command, processes of ``user``; files with ``AS_AGENT``
    are that user's too.  ``home``: their HOME; empty to leave it as it is."""
    return _frame(b"U", request, user.encode() + (_path(home) if home else b""))


def private_folders_frame(request: int, modes: Mapping[str, int]) -> bytes:
    """Make folders private, given by path with their modes; none: there are no private folders any longer."""
    names = {_path(path): mode for path, mode in modes.items()}
    return _frame(b"M", request, b"".join(struct.pack("<HH", mode, len(name)) + name for name, mode in names.items()))


def sync_frame(request: int, nonce: bytes, position: int) -> bytes:
    """Ask PID 1 to send again everything after ``position``.

    Its answer is a :class:`.init_messages.StreamResumed`, which begins with
    :func:`.init_messages.sync_marker`. The ids of a new client's later requests are greater than
    ``request``.
    """
    return _frame(b"Y", request, nonce + struct.pack("<Q", position))


def stream_ack_frame(position: int) -> bytes:
    """Tell PID 1 that everything before this position was received and need not be kept."""
    return _frame(b"N", 0, struct.pack("<Q", position))


def request_id_of(frame: bytes) -> int:
    """Return the request id of a frame to PID 1."""
    start = FRAME_HEADER.size + FRAME_CHECKSUM.size
    return int.from_bytes(frame[start : start + 4], "little")


def quit_frame(request: int) -> bytes:
    """End the container."""
    return _frame(b"Q", request)
