"""The files of a container that its daemon reads on the host: who the user is, when it starts one, and whose a file is,
when it packs some.

Of an image those are somebody's who built it.  In a sandbox, and in a copy of one, they are an agent's: a pipe among
them holds the daemon for ever, and the container with it, which then nobody can remove; a long list is read into the
daemon's memory.
"""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from sandbox.engine import DockerEngine, EngineError, Json, retried

USER_FILES = ("/etc/passwd", "/etc/group")
MOST_BYTES = 1 << 20
_GO_LINK = 1 << 27
_GO_NO_FILE = 1 << 31 | _GO_LINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
"""The bits of Go's FileMode that say folder, link, device, pipe, socket, character device, anything else."""


class _Stat(NamedTuple):
    mode: int
    size: int
    target: str
    """Of a link: what it leads to in the container, all links followed."""


async def check_user_files(engine: DockerEngine, container: str) -> None:
    """Of a container in which nothing runs that could change them.  Raises EngineError where the daemon had better not
    read them."""
    for path in USER_FILES:
        found = await _stat(engine, container, path)
        if found is not None and found.mode & _GO_LINK:
            found = await _stat(engine, container, found.target)
        if found is not None and (found.mode & _GO_NO_FILE or found.size > MOST_BYTES):
            raise EngineError(f"{path} is no regular file of {MOST_BYTES >> 10} KiB or less")


async def _stat(engine: DockerEngine, container: str, path: str) -> _Stat | None:
    """Without opening it; None where there is nothing.  Raises EngineError."""
    docker = engine.docker

    async def call() -> _Stat | None:
        url = f"{docker.docker_host}/containers/{container}/archive"
        async with docker.session.head(url, params={"path": path}) as answer:
            if answer.status == 404:
                return None
            if answer.status >= 400:
                raise EngineError(f"the daemon answers {answer.status}", answer.status)
            told: Json = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
            return _Stat(int(told["mode"]), int(told["size"]), str(told.get("linkTarget", "")))

    return await retried(f"look at {path} of container {container[:12]}", call, frozenset({500, 502, 503}))
