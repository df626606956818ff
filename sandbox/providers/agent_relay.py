"""Connections of an agent's program in a remote sandbox, carried to a socket of this process.

The program connects to its sandbox's loopback, where the pool server listens; nothing there or here is open to a
network. Each connection is carried by one request to the server (:mod:`sandbox.http.streams`): one request always waits
for the next connection, up to :data:`~sandbox.http.streams.MOST_CONNECTIONS` carry one, and a request that fails closes
its connection alone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from protocol.processes.task_groups import task_group
from sandbox.http.json_client import RETRY_PAUSE_S
from sandbox.http.streams import CHUNK_BYTES, MOST_CONNECTIONS, NO_CONNECTION_STATUS

OpenStream = Callable[[AsyncIterable[bytes]], AbstractAsyncContextManager[aiohttp.ClientResponse]]
"""Sends the request that carries the next connection: its body, and the reply once there is a connection or none."""
_Opened = asyncio.Queue[asyncio.StreamReader]
"""Gets the connection's reader once it is open."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def relay_agent_connections(open_stream: OpenStream) -> AsyncGenerator[socket.socket]:
    """Yield a listening socket whose connections are the program's, for the block."""
    with open_local_listener() as local:
        async with task_group() as group:
            relaying = group.create_task(_relay(open_stream, local.path))
            try:
                yield local.listener
            finally:
                relaying.cancel()


class LocalListener(NamedTuple):
    """A listening Unix socket, and where it is reached."""

    listener: socket.socket
    path: Path


@contextmanager
def open_local_listener() -> Generator[LocalListener]:
    """Open a listening Unix socket in a folder that only this user can enter."""
    with tempfile.TemporaryDirectory(prefix="longshore-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder, "gateway")
        listener.bind(str(path))
        listener.listen(MOST_CONNECTIONS)
        yield LocalListener(listener, path)


async def _relay(open_stream: OpenStream, path: Path) -> None:
    free = asyncio.Semaphore(MOST_CONNECTIONS)
    async with asyncio.TaskGroup() as group:
        while True:
            await free.acquire()
            settled = asyncio.Event()
            carrying = group.create_task(_carry_next(open_stream, path, settled))
            carrying.add_done_callback(lambda _: free.release())
            await settled.wait()


async def _carry_next(open_stream: OpenStream, path: Path, settled: asyncio.Event) -> None:
    """Carry the next connection; ``settled`` is set when there is one, or none came."""
    opened = _Opened()
    try:
        async with open_stream(_sent(opened)) as reply:
            if reply.status == 200:
                settled.set()
                await _carry(reply, path, opened)
            elif reply.status != NO_CONNECTION_STATUS:
                await asyncio.sleep(RETRY_PAUSE_S)  # the program's own request tells what is wrong with the sandbox
    except (aiohttp.ClientError, TimeoutError, OSError):
        await asyncio.sleep(RETRY_PAUSE_S)
    except Exception:  # noqa: BLE001  the boundary: a defect that one connection meets leaves the others open
        _log.exception("a connection of an agent's program failed by a defect")
        await asyncio.sleep(RETRY_PAUSE_S)
    finally:
        settled.set()


async def _carry(reply: aiohttp.ClientResponse, path: Path, opened: _Opened) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    opened.put_nowait(reader)
    try:
        async for data in reply.content.iter_any():
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _sent(opened: _Opened) -> AsyncGenerator[bytes]:
    """Yield the request's body: what this process sends over the connection, once it is open."""
    reader = await opened.get()
    while data := await reader.read(CHUNK_BYTES):
        yield data
