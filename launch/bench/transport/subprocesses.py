"""Where two processes of a measurement meet, and what each says of itself."""

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
"""Messages that wait in a ZeroMQ socket of an arm that is not ours."""


def bind_to_loopback(socket: zmq.Socket[bytes]) -> str:
    """Its endpoint, at a free port of loopback."""
    socket.linger = 0
    socket.set_hwm(HIGH_WATER)
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@contextmanager
def start_module(module: str, *arguments: object) -> Generator[subprocess.Popen[bytes]]:
    """A process of ``launch.bench.transport.MODULE``, killed at the end of the context; a sender ends by itself where
    its standard input is closed."""
    command = [sys.executable, "-m", f"launch.bench.transport.{module}", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_output(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a process says at its end.  Raises InfraError for one that failed."""
    output, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise InfraError(f"{process.args!r} ended with exit code {process.returncode}; its traceback is above")
    return orjson.loads(output)


async def poll_until(holds: Callable[[], bool]) -> None:
    """Look now and then: what is waited for is partly another process's."""
    while not holds():  # noqa: ASYNC110  no event tells of another process's end
        await asyncio.sleep(0.01)
