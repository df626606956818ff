"""A listening socket inside another network namespace.

The sandbox keeps the network ``none``: nothing leads out of its namespace but what listens on its loopback, and that is
a socket of ours.  No bridge, no address, no packet filter, and no way from one sandbox to another.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import threading
from pathlib import Path

from protocol.errors import UserError
from sandbox.engine import EngineError

HOST, PORT = "127.0.0.1", 3128
_CLONE_NEWNET = 0x40000000
_BACKLOG = 64


class DoorTaken(EngineError):
    """A program in the sandbox listens where its gate would."""


async def listening_in(pid: int) -> socket.socket:
    """A socket at 127.0.0.1:3128 of the namespace of a process on this host.

    Raises UserError where this process may not enter it, DoorTaken, EngineError when it is gone.
    """
    try:
        made = await asyncio.to_thread(_in_own_thread, pid)
    except PermissionError as error:
        raise UserError(
            "network `proxy` opens a door into each sandbox's namespace, and this process may not enter one: run as "
            "root on the Docker engine's host, or use network `none` or `full`"
        ) from error
    except OSError as error:
        kind = DoorTaken if error.errno == errno.EADDRINUSE else EngineError
        raise kind(f"could not open the gate into the sandbox of process {pid}: {error}") from error
    return made


def _in_own_thread(pid: int) -> socket.socket:
    """In a thread that ends with it: a thread that has changed its namespace serves nothing else."""
    made: list[socket.socket] = []
    problems: list[OSError] = []

    def work() -> None:
        try:
            made.append(_enter_and_listen(pid))
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=work, name=f"gate-{pid}")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return made[0]


def _enter_and_listen(pid: int) -> socket.socket:
    namespace = Path(f"/proc/{pid}/ns/net")
    if namespace.stat().st_ino == Path("/proc/self/ns/net").stat().st_ino:
        raise OSError(errno.EINVAL, "it has no network namespace of its own")
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((HOST, PORT))
        door.listen(_BACKLOG)
    except OSError:
        door.close()
        raise
    return door
