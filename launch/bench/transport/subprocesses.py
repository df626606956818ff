"""Starts the processes of a measurement, and connects them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import orjson
import zmq

from protocol.errors import InfraError

TIMEOUT_S = 120.0
HIGH_WATER = 64
"""High-water mark of the ZeroMQ sockets of other arms."""


def bind_to_loopback(socket: zmq.Socket[bytes]) -> str:
    """Bind a socket to a free port of loopback, and return its endpoint."""
    socket.linger = 0
    socket.set_hwm(HIGH_WATER)
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@contextmanager
def start_module(module: str, *arguments: object) -> Generator[subprocess.Popen[bytes]]:
    """Start ``launch.bench.transport.MODULE``, which is killed at the end of the context; a sender ends when its
    standard input is closed.
    """
    command = [sys.executable, "-m", f"launch.bench.transport.{module}", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_output(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return a process's output at its end.  Raises InfraError if it failed."""
    output, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise InfraError(f"{process.args!r} ended with exit code {process.returncode}; its traceback is above")
    return orjson.loads(output)


async def poll_until(holds: Callable[[], bool]) -> None:
    """Poll a condition that partly depends on another process."""
    while not holds():  # noqa: ASYNC110  no event tells of another process's end
        await asyncio.sleep(0.01)
