"""Carries the connections of a sandbox's programs to a listening socket of this process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from protocol.processes.task_groups import task_group
from sandbox.errors import SandboxLost
from sandbox.http.streams import CHUNK_BYTES, MOST_CONNECTIONS
from sandbox.providers.agent_relay import open_local_listener
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.relay.frames import (
    Frame,
    FrameKind,
    FrameReader,
    ReceivedStream,
    RelayProtocolError,
    RelayReply,
    SentStream,
    StreamPart,
    data_frames,
)
from sandbox.providers.daytona.relay.program import RelayProgram

_WAIT_S = 20.0
"""Maximum seconds of one exchange; connections that are silent for longer are cut."""
_AGAIN_S = 0.5
"""Seconds until a program that was killed is started again."""
_MOST_PART_BYTES = 64 << 10
"""Most bytes that one exchange hands over: in base64 they are one argument of a command, of which Linux takes
128 KiB."""
_MOST_RECEIVED_BYTES = 256 << 10
_MOST_UNSENT_BYTES = 1 << 20
"""Bytes for the sandbox at which nothing more is read from the connections here."""
_MOST_FRAMES = 256
"""Frames for one connection that wait here; then all of the sandbox's connections wait."""
_log = logging.getLogger(__name__)


class ExchangeBytes(Protocol):
    """See :meth:`RelayProgram.exchange`."""

    async def __call__(
        self, incarnation: int, received: int, most_bytes: int, wait_s: float, part: StreamPart, /
    ) -> RelayReply | None: ...


@dataclass(slots=True, eq=False)
class _Connection:
    number: int
    arrived: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_MOST_FRAMES))
    """Data from the sandbox; empty bytes are its end."""
    carrying: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self.carrying is not None:
            self.carrying.cancel()

    def forget_arrived(self) -> None:
        """Make room for who still waits to add to it."""
        while not self.arrived.empty():
            self.arrived.get_nowait()

    async def write_arrived(self, writer: asyncio.StreamWriter) -> None:
        while data := await self.arrived.get():
            writer.write(data)
            await writer.drain()
        writer.write_eof()


class ConnectionCarrier:
    """The connections of one program, each to a Unix socket at ``path``."""

    def __init__(self, exchange: ExchangeBytes, path: Path, incarnation: int) -> None:
        self._exchange, self._path = exchange, path
        self._begin(incarnation)
        self._changed = asyncio.Condition()
        """Notified when there is more to send, or less."""

    def _begin(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._sent, self._received, self._frames = SentStream(), ReceivedStream(), FrameReader()
        self._connections = dict[int, _Connection]()

    async def carry(self) -> None:
        """Carry connections until cancelled, or until the sandbox is lost or sends nonsense.  Its program goes on."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._receive(group))
                group.create_task(self._send())
        except* SandboxLost:
            pass  # the program's own call tells what is wrong with the sandbox
        except* RelayProtocolError as errors:
            _log.warning("a sandbox's connections are no longer carried: %s", errors.exceptions[0])

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        while True:
            at = (self._incarnation, self._received.position)
            reply = await self._exchange(*at, _MOST_RECEIVED_BYTES, _WAIT_S, StreamPart(0, b""))
            if reply is None:
                await asyncio.sleep(_AGAIN_S)
            elif await self._acknowledge(reply, at[0]):
                await self._dispatch(reply, group)

    async def _send(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._sent.size > 0)
            at = (self._incarnation, self._received.position)
            reply = await self._exchange(*at, 0, 0.0, self._sent.next_part(_MOST_PART_BYTES))
            if reply is None:
                await asyncio.sleep(_AGAIN_S)
            else:
                await self._acknowledge(reply, at[0])

    async def _acknowledge(self, reply: RelayReply, asked: int) -> bool:
        """Note what has arrived at the program, of which ``asked`` was expected to answer.

        Returns False if it was another one: with the next one nothing is connected yet, and a late answer of an earlier
        one says nothing."""
        is_same = reply.incarnation == self._incarnation
        if is_same:
            self._sent.acknowledge(reply.taken)
        elif asked == self._incarnation:
            for connection in self._connections.values():
                connection.end()
            self._begin(reply.incarnation)
        async with self._changed:
            self._changed.notify_all()
        return is_same

    async def _dispatch(self, reply: RelayReply, group: asyncio.TaskGroup) -> None:
        for frame in self._frames.feed(self._received.take(reply.part)):
            connection = self._connections.get(frame.connection)
            if frame.kind is FrameKind.OPENED:
                if connection is not None:
                    raise RelayProtocolError("it has opened a connection twice")
                await self._open(frame.connection, group)
            elif connection is not None and frame.kind is FrameKind.BROKEN:
                connection.end()
            elif connection is not None:
                await connection.arrived.put(frame.data)
            if self._incarnation != reply.incarnation:
                return

    async def _open(self, number: int, group: asyncio.TaskGroup) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            await self._append(Frame(FrameKind.BROKEN, number), self._incarnation)
            return
        opened = self._connections[number] = _Connection(number)
        opened.carrying = group.create_task(self._carry(opened))

    async def _carry(self, connection: _Connection) -> None:
        incarnation = self._incarnation
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            try:
                async with task_group() as group:
                    group.create_task(connection.write_arrived(writer))
                    await self._read(connection.number, reader, incarnation)
            finally:
                writer.close()
        except OSError:
            await self._append(Frame(FrameKind.BROKEN, connection.number), incarnation)
        finally:
            if self._connections.get(connection.number) is connection:
                del self._connections[connection.number]
            connection.forget_arrived()

    async def _read(self, number: int, reader: asyncio.StreamReader, incarnation: int) -> None:
        while data := await reader.read(CHUNK_BYTES):
            for frame in data_frames(number, data):
                await self._append(frame, incarnation)
        await self._append(Frame(FrameKind.ENDED, number), incarnation)

    async def _append(self, frame: Frame, incarnation: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._sent.size < _MOST_UNSENT_BYTES)
            if self._incarnation == incarnation:
                self._sent.append(frame.encode())
                self._changed.notify_all()


@asynccontextmanager
async def carry_agent_connections(machine: DaytonaHandle, port: int, cache: Path) -> AsyncGenerator[socket.socket]:
    """Yield a listening socket whose connections are those that programs of the sandbox make to 127.0.0.1:``port``
    there, for the block, or until the sandbox sends nonsense: then they are closed, as are new ones.  The program that
    listens is compiled in ``cache`` if it is absent.

    Raises SandboxLost, SandboxStartError if it cannot listen, UserError if it cannot be compiled.
    """
    program = RelayProgram(machine, port)
    with open_local_listener() as local:
        try:
            first = await program.start(cache)
            carrier = ConnectionCarrier(program.exchange, local.path, first.incarnation)

            async def carry() -> None:
                await carrier.carry()
                await program.stop()  # else a harness would wait for answers that nobody brings

            async with task_group() as group:
                carrying = group.create_task(carry())
                try:
                    yield local.listener
                finally:
                    carrying.cancel()
        finally:
            await asyncio.shield(program.stop())
