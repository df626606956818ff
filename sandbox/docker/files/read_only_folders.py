"""Folders of a running container in which nothing can be changed: each is mounted read-only over itself.

It needs a container with SYS_ADMIN, which no process of an agent has; without it a mount cannot be undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError, call_with_retries

_MOUNT = 'for folder; do /.sbx/busybox mount --bind "$folder" "$folder" && \
/.sbx/busybox mount -o remount,bind,ro "$folder" || exit 1; done'


async def make_read_only(engine: DockerEngine, container: str, folders: Sequence[str]) -> None:
    """Make ``folders``, absolute paths of folders that exist, read-only.  Raises DockerEngineError."""

    async def call() -> str:
        command = ["/.sbx/busybox", "sh", "-c", _MOUNT, "sh", *folders]
        execution = await engine.docker.containers.container(container).exec(command, user="0:0", workdir="/")  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        async with execution.start(detach=False) as output:
            said = b""
            while message := await output.read_out():
                said += message.data
        code = (await execution.inspect())["ExitCode"]
        return f"{said.decode(errors='replace')} ({code})" if code else ""

    what = f"make {', '.join(folders)} in container {container[:12]} read-only"
    if problem := await call_with_retries(what, call, frozenset(), idempotent=False):
        raise DockerEngineError(f"could not {what}: {problem}")
