"""The port of a sandbox at which an agent's program reaches the server's client.

The client cannot listen in the sandbox, so the server does while the program runs, and keeps each connection until a
request of the client carries it. What connects there reaches the client of this lease, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request

from sandbox.http.streams import CHUNK_BYTES, MOST_CONNECTIONS, NO_CONNECTION_S, NO_CONNECTION_STATUS, StreamCall


class AgentConnection(NamedTuple):
    """A connection that a program in the sandbox has opened."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class AgentPort:
    """The connections of one lease's sandbox."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[AgentConnection] = asyncio.Queue()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncGenerator[None]:
        """Accept connections in the block; at its end all are closed."""
        server = await asyncio.start_server(self._accept, sock=listener)
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            self._writers.clear()
            while not self._waiting.empty():
                self._waiting.get_nowait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._writers.add(writer)
        self._waiting.put_nowait(AgentConnection(reader, writer))

    async def carry_next(self, call: StreamCall) -> None:
        """Wait for the next connection, and carry it by this request until either end closes it."""
        opened = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                receiving = group.create_task(_receive(call.request, opened))
                await self._carry(call, opened)
                receiving.cancel()
        except* (ClientDisconnect, OSError):
            pass  # one end is gone, which closes the connection

    async def _carry(self, call: StreamCall, opened: asyncio.Future[asyncio.StreamWriter]) -> None:
        try:
            async with asyncio.timeout(NO_CONNECTION_S):
                reader, writer = await self._waiting.get()
        except TimeoutError:
            await call.begin(NO_CONNECTION_STATUS)
            return
        try:
            await call.begin()
            opened.set_result(writer)
            while data := await reader.read(CHUNK_BYTES):
                await call.write(data)
        finally:
            self._writers.discard(writer)
            writer.close()


async def _receive(request: Request, opened: asyncio.Future[asyncio.StreamWriter]) -> None:
    """Write the request's body to the connection, and close that at the end."""
    async for data in request.stream():
        writer = await opened
        writer.write(data)
        await writer.drain()
    (await opened).close()
