"""Folders of a running container in which nothing can be changed: each is mounted read-only over itself.

It needs a container with SYS_ADMIN, which no process of an agent has; without it a mount cannot be undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.docker.engine import DockerEngine
from sandbox.docker.execution import execute
from sandbox.docker.retry import DockerEngineError

_MOUNT = 'for folder; do /.sbx/busybox mount --bind "$folder" "$folder" && \
/.sbx/busybox mount -o remount,bind,ro "$folder" || exit 1; done'


async def make_read_only(engine: DockerEngine, container: str, folders: Sequence[str]) -> None:
    """Make ``folders``, absolute paths of folders that exist, read-only.  Raises DockerEngineError."""

    what = f"make {', '.join(folders)} in container {container[:12]} read-only"
    done = await execute(engine, container, ["/.sbx/busybox", "sh", "-c", _MOUNT, "sh", *folders], what)
    if done.exit_code:
        raise DockerEngineError(f"could not {what}: {done.output} ({done.exit_code})")
