"""Looks up the users of a container in its files, and makes one of them the agent's, through PID 1."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sandbox.docker.files.user_files import MAX_USER_FILE_BYTES, USER_FILES
from sandbox.errors import TaskFault
from sandbox.session.files import read_file
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.connection import ANSWER_S, InitConnection
from sandbox.session.users import ContainerUser, UnknownUserError, names_root, resolve_user


async def look_up_users(connection: InitConnection, names: Sequence[str]) -> list[ContainerUser]:
    """Return the users with these names, or numbers.

    Raises TaskFault for one that the container does not have, OSError, SandboxLost, SandboxDestroyed.
    """
    if all(map(names_root, names)):
        return [ContainerUser()] * len(names)
    passwd, group = [await _read_user_file(connection, path) for path in USER_FILES]
    try:
        return [resolve_user(name, passwd, group) for name in names]
    except (UnknownUserError, ValueError) as error:
        raise TaskFault(f"the task's user cannot be used: {error}") from error


async def _read_user_file(connection: InitConnection, path: str) -> str:
    """Return the text of a user file; empty if there is none."""
    try:
        return (await read_file(connection, path, MAX_USER_FILE_BYTES)).decode(errors="replace")
    except FileNotFoundError:
        return ""


async def switch_agent_user(connection: InitConnection, user: ContainerUser, home: str) -> None:
    """Run commands of the agent as ``user`` from now on; ``home``: their HOME, empty to leave it as it is.

    Raises OSError with PID 1's errno, SandboxLost, SandboxDestroyed.
    """
    request = connection.request(lambda n: init_requests.agent_user_frame(n, user.process, home))
    if error := (await connection.wait_acknowledged(request, ANSWER_S)).error:
        raise OSError(error, os.strerror(error), "the agent's user")
