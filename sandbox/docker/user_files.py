"""The files of a container that its daemon reads on the host: who the user is, when it starts one, and whose a file is,
when it packs some.

Of an image those are somebody's who built it.  In a sandbox, and in a copy of one, they are an agent's: a pipe among
them holds the daemon for ever, and the container with it, which then nobody can remove; a long list is read into the
daemon's memory.
"""

from __future__ import annotations

from sandbox.docker.engine import DockerEngine
from sandbox.docker.file_status import container_file_status
from sandbox.docker.retry import DockerEngineError

USER_FILES = ("/etc/passwd", "/etc/group")
MAX_USER_FILE_BYTES = 1 << 20


async def check_user_files(engine: DockerEngine, container: str) -> None:
    """Of a container in which nothing runs that could change them.  Raises EngineError where the daemon had better not
    read them."""
    for path in USER_FILES:
        found = await container_file_status(engine, container, path)
        if found is not None and found.is_link:
            found = await container_file_status(engine, container, found.target)
        if found is not None and not (found.is_file and found.size <= MAX_USER_FILE_BYTES):
            raise DockerEngineError(f"{path} is no regular file of {MAX_USER_FILE_BYTES >> 10} KiB or less")
