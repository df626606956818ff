"""ZeroMQ sockets in an asyncio event loop, with many messages per wake-up.

ZeroMQ's file descriptor is edge-triggered, and any call may consume the edge; so after such calls
:meth:`AsyncSocket._poll_events` asks the socket what it is ready for.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Self, cast

import zmq

from protocol.codec import Frame

UNLIMITED = 0
"""High-water mark of what arrives; credit bounds it.  If a connection ends while ZeroMQ (4.3.5) does not read from it
because its queue is full, the next heartbeat ends the process (``Assertion failed: !_io_error``)."""
_MONITOR = "inproc://monitor"
"""Address of a monitor; unique because each socket has its own context."""
_NOW, _AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE, _WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
"""Flags as integers: converting enum members would take longer than the calls."""
_COPIED_BYTES = 96 << 10
"""Size below which a frame is copied when sent: tracking its release by ZeroMQ would take longer."""
_EVENT = struct.Struct("=Hi")


class AsyncSocket:
    """A bound or connected socket, for one task that receives and one that sends.  Large frames are not copied.

    ``close`` it, or use it as a context manager.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._send = super(zmq.Socket, socket).send  # without the options of other socket types
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        self._loop, self._descriptor = asyncio.get_running_loop(), cast("int", socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._poll_events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket; pending messages have ``linger_ms`` to be sent in the background, for which the context's
        end waits."""
        self._loop.remove_reader(self._descriptor)
        self._socket.close(linger=linger_ms)

    async def receive(self, most: int = 64) -> list[list[memoryview]]:
        """Wait for and return at least one message and at most ``most``."""
        while True:
            self._readable.clear()
            batch = self._drain(most)
            self._poll_events()
            if batch:
                return batch
            await self._readable.wait()

    async def send(self, *messages: Sequence[Frame]) -> None:
        """Send messages; waits while the socket's high-water mark is reached."""
        for frames in messages:
            while not self._try_send(frames):
                self._writable.clear()
                self._poll_events()
                await self._writable.wait()
        self._poll_events()

    def send_now(self, frames: Sequence[Frame]) -> bool:
        """Send without waiting.  Returns False if the high-water mark is reached or a ROUTER has no such peer."""
        sent = self._try_send(frames)
        self._poll_events()
        return sent

    def _try_send(self, frames: Sequence[Frame]) -> bool:
        try:
            for frame in frames[:-1]:
                self._send(frame, _AND_MORE, copy=len(frame) < _COPIED_BYTES)
            self._send(frames[-1], _NOW, copy=len(frames[-1]) < _COPIED_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def _drain(self, most: int) -> list[list[memoryview]]:
        batch: list[list[memoryview]] = []
        try:
            while len(batch) < most:
                frame = self._socket.recv(_NOW, copy=False)
                message = [frame.buffer]
                while frame.more:
                    frame = self._socket.recv(_NOW, copy=False)
                    message.append(frame.buffer)
                batch.append(message)
        except zmq.Again:
            pass
        return batch

    def _poll_events(self) -> None:
        events = cast("int", self._socket.getsockopt(zmq.EVENTS))
        if events & _READABLE:
            self._readable.set()
        if events & _WRITABLE:
            self._writable.set()


class SocketMonitor:
    """Receives ZeroMQ's events about the connections of ``socket``.  ``close`` it before the socket."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int) -> None:
        self._watched = socket
        socket.monitor(_MONITOR, events)
        reader = context.socket(zmq.PAIR)
        reader.rcvhwm = 0  # else a slow reader would block ZeroMQ's I/O thread, and with it every connection
        reader.connect(_MONITOR)
        self._wire = AsyncSocket(reader)

    async def receive(self) -> list[tuple[int, int]]:
        """Wait for and return at least one (event, value)."""
        return [cast("tuple[int, int]", _EVENT.unpack(head)) for head, _ in await self._wire.receive()]

    def close(self) -> None:
        self._watched.disable_monitor()
        self._wire.close()


def enable_heartbeats(socket: zmq.Socket[bytes]) -> None:
    """Let ZeroMQ detect a peer that vanished, and reconnect."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 10000)
