"""Moves files into and out of a Daytona sandbox, with the errors that every sandbox raises."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import tarfile
from collections.abc import Mapping

from sandbox.providers.daytona.handle import DaytonaHandle

_AT_ONCE = 100


async def write_files(machine: DaytonaHandle, files: Mapping[str, bytes], mode: int) -> None:
    """Write files with this mode. Raises OSError, ValueError, SandboxLost."""
    for path in files:
        _absolute(path)
    staged = [(machine.staging_path(), path, data) for path, data in files.items()]
    await machine.upload([(staging, data) for staging, _, data in staged])
    for at in range(0, len(staged), _AT_ONCE):
        pairs = [word for staging, path, _ in staged[at : at + _AT_ONCE] for word in (staging, path)]
        _check((await machine.call("write", f"{mode:o}", *pairs)).code, "")


async def read_file(machine: DaytonaHandle, path: str, max_bytes: int) -> bytes:
    """Read a regular file. Raises OSError, ValueError, SandboxLost."""
    _absolute(path)
    return await _download(machine, "read", path, max_bytes)


async def read_tree(machine: DaytonaHandle, path: str, max_bytes: int) -> dict[str, bytes]:
    """Read the regular files below a folder. Raises OSError, ValueError, SandboxLost."""
    _absolute(path)
    packed = await _download(machine, "tree", path, max_bytes)
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed), errors="surrogateescape") as tar:
        for member in tar:
            if member.isreg() and (content := tar.extractfile(member)) is not None:
                found[posixpath.normpath(member.name)] = content.read()
    return found


async def _download(machine: DaytonaHandle, verb: str, path: str, max_bytes: int) -> bytes:
    staging = machine.staging_path()
    _check((await machine.call(verb, path, str(max_bytes), staging)).code, path)
    data = await machine.download(staging)
    await machine.call("remove", staging)
    return data


def _check(code: int, path: str) -> None:
    """Raise OSError for an exit code other than 0; the code is an errno."""
    if code:
        number = code if code in errno.errorcode else errno.EIO
        raise OSError(number, os.strerror(number), path)


def _absolute(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")
