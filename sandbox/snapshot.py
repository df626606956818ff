"""A copy of a sandbox as it stands: its files as an image, and a second sandbox that begins with them.

The daemon pauses the container while it copies, so that the copy is of one moment.  Processes, variables and what lies
in a tmpfs are not in it.  An image lives as long as its ``async with`` and is removed by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import aiodocker

from sandbox.engine import EngineError, retried
from sandbox.errors import SandboxLost
from sandbox.session import SandboxSession, SessionLimits

_BUSY = frozenset({409, 500, 503})


@asynccontextmanager
async def snapshot(session: SandboxSession) -> AsyncGenerator[str]:
    """The id of an image of the session's files.  Raises SandboxLost."""
    copying = asyncio.ensure_future(_commit(session))
    try:
        yield await asyncio.shield(copying)
    except EngineError as error:
        raise SandboxLost(f"the sandbox could not be copied: {error}") from error
    finally:
        await asyncio.shield(_forget(session, copying))


@asynccontextmanager
async def fork(session: SandboxSession, limits: SessionLimits) -> AsyncGenerator[SandboxSession]:
    """A second sandbox with the first one's files, limits and labels, whose shell stands where the first one's does.

    The caller keeps it alive with :meth:`SandboxSession.extend`.  Raises SandboxLost, SandboxStartError.
    """
    if session.spec is None:
        raise SandboxLost("an adopted sandbox cannot be forked: nobody knows how it was made")
    async with snapshot(session) as image:
        copy = await SandboxSession.start(session.engine, replace(session.spec, image=image), session.shell.cwd, limits)
        copy.workdir = session.workdir
        try:
            yield copy
        finally:
            await copy.close()
            with contextlib.suppress(EngineError):
                await asyncio.shield(session.engine.remove(copy.container))  # an image in use cannot be removed


async def _commit(session: SandboxSession) -> str:
    docker = session.engine.docker

    async def call() -> str:
        container = docker.containers.container(session.container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return cast("str", (await container.commit(pause=True))["Id"])

    return await retried(f"copy container {session.container[:12]}", call, frozenset({500, 503}), idempotent=False)


async def _forget(session: SandboxSession, copying: asyncio.Future[str]) -> None:
    """The daemon finishes a copy whose client has gone, so a cancelled one is seen to its end and removed."""
    docker = session.engine.docker
    with contextlib.suppress(EngineError):
        image = await copying

        async def call() -> None:
            try:
                await docker.images.delete(image, force=True, noprune=True)
            except aiodocker.DockerError as error:
                if error.status != 404:
                    raise

        await retried(f"remove image {image[:19]}", call, _BUSY)
