"""Folders of a sandbox whose content exists for PID 1 and its later children, but not for processes that ran before.

PID 1 and the children that it starts see an empty tmpfs in each; everything that already runs, and what that starts,
keeps the folders that were there, and cannot rename or remove them (``sandbox/init/mounts.c``). Files that are written
or read through PID 1 are those of the private folders. Their content is in memory that the container's limit covers.
Meanwhile no shell or terminal can be started.

A container provides this if its PID 1 has the :data:`~sandbox.capabilities.PID_1_CAPABILITIES`.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from protocol.errors import UserError
from sandbox.errors import SandboxLost
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.connection import ANSWER_S, InitConnection

_REFUSED = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS))
"""Errors with which the kernel or the engine's filters refuse a mount; no file of the agent causes them."""


@asynccontextmanager
async def private_folders(connection: InitConnection, modes: Mapping[str, int]) -> AsyncGenerator[None]:
    """Make folders, given as absolute paths with their modes, private until the block ends.

    When it ends, no process that began within it should run. Raises UserError if the engine does not let PID 1 mount,
    OSError if the container's files prevent it, SandboxLost, SandboxDestroyed.
    """
    try:
        if error := await _request(connection, modes):
            raise _explain(error, modes)
        yield
    finally:
        if connection.alive:
            await asyncio.shield(_remove(connection))


def _explain(error: int, modes: Mapping[str, int]) -> Exception:
    if error in _REFUSED:
        return UserError(
            f"the sandbox's PID 1 may not mount private folders ({os.strerror(error)}), which a task with `grading: "
            "live` needs: grade it at another level, or see that the engine's AppArmor, SELinux or seccomp lets a "
            "container with SYS_ADMIN mount"
        )
    if error == errno.EALREADY:
        return SandboxLost("it has private folders already: its tests were begun by a client that is lost")
    return OSError(error, os.strerror(error), ", ".join(modes))


async def _remove(connection: InitConnection) -> None:
    if error := await _request(connection, {}):
        raise SandboxLost(f"the private folders could not be unmounted: {os.strerror(error)}")


async def _request(connection: InitConnection, modes: Mapping[str, int]) -> int:
    """Return PID 1's errno, 0 for none."""
    request = connection.request(lambda n: init_requests.private_folders_frame(n, modes))
    try:
        return (await connection.wait_acknowledged(request, ANSWER_S)).error
    except TimeoutError as error:
        raise SandboxLost(f"PID 1 did not mount or unmount folders within {ANSWER_S:.0f} s") from error
