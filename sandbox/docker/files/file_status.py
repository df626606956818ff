"""The status of a path in a container as the daemon reports it, without opening the file."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, Json, call_with_retries

_GO_LINK = 1 << 27
_GO_NO_FILE = 1 << 31 | _GO_LINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
"""Bits of Go's FileMode for folder, link, device, pipe, socket, character device and irregular file."""


class ContainerFileStatus(NamedTuple):
    """Mode (Go's FileMode), size in bytes, and link target of a path."""

    mode: int
    size: int
    target: str
    """Path in the container to which a link resolves."""

    @property
    def is_link(self) -> bool:
        """True for a symbolic link."""
        return bool(self.mode & _GO_LINK)

    @property
    def is_file(self) -> bool:
        """True for a regular file."""
        return not self.mode & _GO_NO_FILE


async def container_file_status(engine: DockerEngine, container: str, path: str) -> ContainerFileStatus | None:
    """Return the status of a path; None where nothing exists. Raises DockerEngineError."""
    docker = engine.docker

    async def call() -> ContainerFileStatus | None:
        url = f"{docker.docker_host}/containers/{container}/archive"
        async with docker.session.head(url, params={"path": path}) as answer:
            if answer.status == 404:
                return None
            if answer.status >= 400:
                raise DockerEngineError(f"the daemon answers {answer.status}", answer.status)
            status: Json = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
            return ContainerFileStatus(int(status["mode"]), int(status["size"]), str(status.get("linkTarget", "")))

    return await call_with_retries(f"look at {path} of container {container[:12]}", call, BUSY_STATUSES)
