"""A sandbox's files at one moment, as an image from which :meth:`sandbox.pool.sandbox_pool.SandboxPool.fork` starts a
second sandbox.

The daemon pauses the container while it copies. Processes, variables, and files in a tmpfs or on a volume are not
included. The image exists until the end of its ``async with`` block and is removed by its id.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from sandbox.docker.files.committed_images import committed_image, writable_layer_bytes
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost
from sandbox.session.sandbox_session import SandboxSession


@asynccontextmanager
async def snapshot(session: SandboxSession) -> AsyncGenerator[str]:
    """Yield the id of an image of the session's files.

    Raises SandboxLost, also if the files are longer than the disk limit, because holes take up room in a copy.
    """
    async with AsyncExitStack() as stack:
        try:
            if session.spec is not None:
                size, most = (
                    await writable_layer_bytes(session.engine, session.container),
                    session.spec.limits.disk_bytes,
                )
                if size > most:
                    raise SandboxLost(f"its files are {size >> 20} MiB long, and its disk limit is {most >> 20} MiB")
            image = await stack.enter_async_context(committed_image(session.engine, session.container, pause=True))
        except DockerEngineError as error:
            raise SandboxLost(f"the sandbox could not be copied: {error}") from error
        yield image
