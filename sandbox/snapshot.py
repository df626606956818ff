"""A copy of a sandbox as it stands: its files as an image, and a second sandbox that begins with them.

The daemon pauses the container while it copies, so that the copy is of one moment.  Processes, variables and what lies
in a tmpfs are not in it.  An image lives as long as its ``async with`` and is removed by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from sandbox.commit import committed
from sandbox.engine import EngineError
from sandbox.errors import SandboxLost
from sandbox.session import SandboxSession, SessionLimits


@asynccontextmanager
async def snapshot(session: SandboxSession) -> AsyncGenerator[str]:
    """The id of an image of the session's files.  Raises SandboxLost."""
    async with AsyncExitStack() as stack:
        try:
            image = await stack.enter_async_context(committed(session.engine, session.container, pause=True))
        except EngineError as error:
            raise SandboxLost(f"the sandbox could not be copied: {error}") from error
        yield image


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
