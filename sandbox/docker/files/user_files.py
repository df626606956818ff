"""Checks the files of a container that the daemon itself reads on the host: /etc/passwd and /etc/group.

The daemon reads them when it starts a container or packs files. The author of an image wrote them there; in a sandbox,
or in an image committed from one, the agent may have changed them: a named pipe blocks the daemon forever, and with it
the container's removal, and a huge file fills the daemon's memory.
"""

from __future__ import annotations

from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.file_status import container_file_status
from sandbox.docker.retry import DockerEngineError

USER_FILES = ("/etc/passwd", "/etc/group")
MAX_USER_FILE_BYTES = 1 << 20


async def check_user_files(engine: DockerEngine, container: str) -> None:
    """Check the files of a container in which nothing is running that could change them.

    Raises DockerEngineError where the daemon must not read them.
    """
    for path in USER_FILES:
        found = await container_file_status(engine, container, path)
        if found is not None and found.is_link:
            found = await container_file_status(engine, container, found.target)
        if found is not None and not (found.is_file and found.size <= MAX_USER_FILE_BYTES):
            raise DockerEngineError(f"{path} is not a regular file of at most {MAX_USER_FILE_BYTES >> 10} KiB")
