"""Reading one regular file out of a container through Docker's archive API, never more of it than was asked for.

The daemon resolves the path inside the container's root and does not follow a link in the last place; what the path is
and how large it is stands in a header, so that a directory, a device or a huge file is refused before its first byte.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import json
import os
import tarfile

import aiohttp

from sandbox.engine import DockerEngine, EngineError

_READ_S = 60.0
_TAR_OVERHEAD_BYTES = 64 << 10
"""Headers and padding around one file."""
_DIRECTORY, _LINK, _ANY_TYPE = 1 << 31, 1 << 27, 0x8F280000
"""Go's os.FileMode bits."""


async def read_file(engine: DockerEngine, container: str, path: str, max_bytes: int) -> bytes:
    """Raises OSError (ENOENT, EISDIR, ELOOP for a link, EINVAL for a device or socket, EFBIG), ValueError for a path
    that is not absolute, EngineError."""
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"not an absolute path: {path!r}")
    docker = engine.docker
    url = f"{docker.docker_host}/containers/{container}/archive"
    try:
        async with (
            asyncio.timeout(_READ_S),
            docker.session.get(url, params={"path": path.rstrip("/") or "/"}) as response,
        ):
            if response.status == 404:
                raise _refused(errno.ENOENT, path)
            if response.status != 200:
                raise EngineError(f"could not read {path}: {(await response.text())[:200]}", response.status)
            size = _checked(path, response.headers.get("X-Docker-Container-Path-Stat", ""), max_bytes)
            packed = bytearray()
            async for chunk in response.content.iter_any():
                packed += chunk
                if len(packed) > size + _TAR_OVERHEAD_BYTES:
                    raise _refused(errno.EFBIG, path)
    except (TimeoutError, aiohttp.ClientError) as error:
        raise EngineError(f"could not read {path}: {type(error).__name__} {error}") from error
    with tarfile.open(fileobj=io.BytesIO(bytes(packed))) as archive:
        member = archive.next()
        file = archive.extractfile(member) if member is not None and member.isreg() else None
        if file is None:
            raise _refused(errno.EINVAL, path)
        return file.read()


def _checked(path: str, header: str, max_bytes: int) -> int:
    """The file's size.  Raises OSError for anything that is not a regular file of at most ``max_bytes``."""
    stat = json.loads(base64.b64decode(header))
    mode, size = int(stat["mode"]), int(stat["size"])
    if mode & _DIRECTORY:
        raise _refused(errno.EISDIR, path)
    if mode & _LINK:
        raise _refused(errno.ELOOP, path)
    if mode & _ANY_TYPE or path.endswith("/"):
        raise _refused(errno.EINVAL, path)
    if size > max_bytes:
        raise _refused(errno.EFBIG, path)
    return size


def _refused(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
