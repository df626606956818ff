"""Moves files into a sandbox and out of it, through PID 1.

PID 1 sees only the container, so no path leads out of it. It touches only regular files, does not follow a link in the
last component of a path, refuses /proc and /sys, and never blocks on a pipe or device. Reads are bounded beforehand: a
file by its size, a tree by its bytes and number of files.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.errors import SandboxLost
from sandbox.session.child_process import collect_child_output
from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.connection import ANSWER_S, InitConnection
from sandbox.session.init_connection.init_requests import ROOT, FileFlag, ProcessUser

MAX_FILE_BYTES = 16 << 20
MAX_TREE_BYTES = 64 << 20
MAX_TREE_FILES = 10_000
CLEAR_TIMEOUT_S = 60.0
"""Maximum seconds to clear a path before a file or folder is written there."""
READ_TREE_TIMEOUT_S = 120.0
_PACK = ("/.sbx/busybox", "sh", "-c", 'exec /.sbx/busybox tar -c -f - -C "$1" . 2>&-', "sh")


class FileTooLarge(Exception):
    """The file or tree is larger than the caller allows."""


def _put(
    connection: InitConnection,
    path: str,
    data: bytes,
    *,
    mode: int = 0o644,
    flags: FileFlag = FileFlag.NONE,
) -> list[int]:
    """Send one file without waiting. Returns the ids of requests to await with
    :meth:`InitConnection.wait_acknowledged`."""
    requests: list[int] = []
    for at in range(0, max(len(data), 1), wire.FILE_CHUNK_BYTES):
        chunk = data[at : at + wire.FILE_CHUNK_BYTES]
        how = flags if at == 0 else FileFlag.APPEND | (flags & FileFlag.AS_AGENT)
        requests.append(
            connection.request(lambda n, c=chunk, h=how: init_requests.write_frame(n, path, c, mode=mode, flags=h))
        )
    return requests


async def write_files(
    connection: InitConnection, contents: Mapping[str, bytes], *, mode: int = 0o644, flags: FileFlag = FileFlag.NONE
) -> None:
    """Write files and the folders above them. A path that ends in ``/`` creates a folder, which whoever could read a
    file of this mode can enter.

    Raises OSError with the container's errno, ValueError for an invalid path, SandboxLost, SandboxDestroyed.
    """
    entered = mode | (mode & 0o444) >> 2
    requests = [
        (path, _put(connection, path, data, mode=entered if path.endswith("/") else mode, flags=flags))
        for path, data in contents.items()
    ]
    failed = [(error, path) for path, sent in requests if (error := await _written(connection, sent))]
    for error, path in failed:
        raise OSError(error, os.strerror(error), path)


async def replace_path(
    connection: InitConnection,
    path: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    flags: FileFlag = FileFlag.REPLACE,
) -> None:
    """Replace whatever exists at ``path`` by a file, or by a folder where ``path`` ends in ``/``.

    PID 1 clears in short steps and does other work in between. Raises OSError with the container's errno, ETIME when
    clearing takes longer than :data:`CLEAR_TIMEOUT_S`, SandboxLost, SandboxDestroyed.
    """
    give_up = time.monotonic() + CLEAR_TIMEOUT_S
    while error := await _written(connection, _put(connection, path, data, mode=mode, flags=flags)):
        if error != errno.ETIME or time.monotonic() > give_up:
            raise OSError(error, os.strerror(error), path)


async def _written(connection: InitConnection, requests: Sequence[int]) -> int:
    """Return the first error of these requests, 0 for none. Raises SandboxLost, SandboxDestroyed."""
    try:
        acks = [await connection.wait_acknowledged(request) for request in requests]
    except TimeoutError as error:
        raise SandboxLost(f"PID 1 did not write a file within {ANSWER_S:.0f} s") from error
    return next((ack.error for ack in acks if ack.error), 0)


async def read_file(
    connection: InitConnection, path: str, max_bytes: int = MAX_FILE_BYTES, flags: FileFlag = FileFlag.NONE
) -> bytes:
    """Read a regular file.

    Raises OSError with the container's errno (ELOOP for a link, EISDIR, EINVAL for a device or pipe, EPERM in /proc),
    FileTooLarge, ValueError for an invalid path, SandboxLost, SandboxDestroyed.
    """
    content = bytearray()
    while True:
        try:
            piece = await connection.read_piece(path, len(content), wire.FILE_CHUNK_BYTES, flags)
        except TimeoutError as error:
            raise SandboxLost(f"PID 1 did not read {path} within {ANSWER_S:.0f} s") from error
        if piece.error:
            raise OSError(piece.error, os.strerror(piece.error), path)
        content += piece.data
        if max(piece.size, len(content)) > max_bytes:
            raise FileTooLarge(f"{path} has {max(piece.size, len(content))} bytes, more than {max_bytes}")
        if not piece.data:
            return bytes(content)


async def read_tree(
    connection: InitConnection,
    path: str,
    *,
    max_bytes: int = MAX_TREE_BYTES,
    max_files: int = MAX_TREE_FILES,
    user: ProcessUser = ROOT,
) -> dict[str, bytes]:
    """Read the regular files under a folder as ``user``, by their paths relative to it. Links, devices and pipes are
    left out.

    The toolchain's own tar packs them in PID 1's child process; the agent cannot have replaced it. It looks up file
    owners, so the agent's /etc/passwd can delay it. Raises FileTooLarge, OSError (ETIME when it takes too long, EIO
    for what cannot be read completely, such as /proc), SandboxLost, SandboxDestroyed.
    """
    room = max_bytes + max_files * 1024 + (1 << 20)
    end, packed = await collect_child_output(
        connection, (*_PACK, path), env={}, limit_s=READ_TREE_TIMEOUT_S, most_bytes=room, user=user
    )
    if len(packed) > room:
        raise FileTooLarge(f"{path} has more than {max_bytes} bytes")
    if end is None:
        raise OSError(errno.ETIME, f"it was not read within {READ_TREE_TIMEOUT_S:.0f} s", path)
    if end.signalled:
        raise OSError(errno.EINTR, "all processes in the sandbox were killed meanwhile", path)
    if end.code and not packed.strip(b"\0"):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    try:
        return unpack_archive(packed, max_bytes=max_bytes, max_files=max_files)
    except ValueError as error:
        raise OSError(errno.EIO, f"it changed while it was read, or cannot be archived ({error})", path) from error


def unpack_archive(
    archive: bytes, *, max_bytes: int = MAX_TREE_BYTES, max_files: int = MAX_TREE_FILES
) -> dict[str, bytes]:
    """Return the regular files of an untrusted tar archive, by relative path. Links and devices are left out.

    Raises FileTooLarge, and ValueError for an invalid archive or a path outside its root.
    """
    found: dict[str, bytes] = {}
    left = max_bytes
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                if not member.isreg():
                    continue
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\0" in member.name:
                    raise ValueError(f"{member.name!r} is outside the archive's root")
                left -= member.size
                if left < 0 or len(found) >= max_files:
                    raise FileTooLarge(f"more than {max_bytes} bytes or {max_files} files")
                content = tar.extractfile(member)
                found[str(name)] = content.read() if content else b""
    except tarfile.TarError as error:
        raise ValueError(f"not a tar archive: {error}") from error
    return found
