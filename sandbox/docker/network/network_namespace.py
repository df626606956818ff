"""Opens a listening socket inside another network namespace.

The sandbox keeps Docker's network ``none``: the only thing reachable in its namespace is this socket on its loopback.
There is no bridge, no address, no packet filter, and no route from one sandbox to another.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import UserError
from protocol.processes.cancellation import call_with_undo
from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.docker.retry import DockerEngineError

_CLONE_NEWNET = 0x40000000
_BACKLOG = 64


class NamespacePortTakenError(DockerEngineError):
    """A program in the sandbox already listens on the port."""


async def listen_in_namespace(
    pid: int, confirm: Callable[[], Awaitable[None]], port: int = PROXY_PORT
) -> socket.socket:
    """Listen at 127.0.0.1:``port`` in the network namespace of a process on this host.

    ``confirm`` is called while the namespace is held and before anything listens there, because the PID of a process
    that has ended may belong to another one by now. Raises UserError where this process may not enter the namespace,
    NamespacePortTakenError, DockerEngineError when the process has ended, and what ``confirm`` raises.
    """
    try:
        with _held(pid) as namespace:
            await confirm()
            return await call_with_undo(lambda: asyncio.to_thread(_in_own_thread, namespace, port), _close)
    except PermissionError as error:
        raise UserError(
            "listening in a sandbox (network `proxy`, agent.harness) needs its namespace, which this process may "
            "not enter: run as root on the Docker engine's host, or use network `none` or `full` and no harness"
        ) from error
    except OSError as error:
        kind = NamespacePortTakenError if error.errno == errno.EADDRINUSE else DockerEngineError
        raise kind(f"could not listen in the sandbox of process {pid}: {error}") from error


@contextmanager
def _held(pid: int) -> Generator[int]:
    """Yield a file descriptor of the network namespace of a process."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(namespace).st_ino == Path("/proc/self/ns/net").stat().st_ino:
            raise OSError(errno.EINVAL, "it has no network namespace of its own")
        yield namespace
    finally:
        os.close(namespace)


async def _close(listener: socket.socket) -> None:
    listener.close()


def _in_own_thread(namespace: int, port: int) -> socket.socket:
    """Listen in a thread that then ends, because a thread that has changed its namespace cannot serve anything else."""
    made: list[socket.socket] = []
    problems: list[OSError] = []

    def work() -> None:
        try:
            made.append(_enter_and_listen(namespace, port))
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=work, name="listener")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return made[0]


def _enter_and_listen(namespace: int, port: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((PROXY_HOST, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
