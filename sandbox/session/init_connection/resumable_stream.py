"""PID 1's stream and its successors, when it breaks while the container keeps running because the daemon restarted.

No byte is lost or repeated on either side: this side counts the bytes that it has received, PID 1 keeps what follows
them, and frames that PID 1 did not get are sent again. A new client of a running container gets the state of each
shell, and nothing that was sent before.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial

from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.docker.stream import StreamProtocolError
from sandbox.session.init_connection import init_messages, init_requests, wire
from sandbox.session.init_connection.attach import AttachStream, attach_to_container
from sandbox.session.init_connection.init_messages import (
    ChildExit,
    CommandStatus,
    FileData,
    InitAck,
    InitHello,
    InitMessage,
    ProcessDied,
    StreamResumed,
)
from sandbox.session.init_connection.resend_buffer import ResendBuffer

_ACKNOWLEDGE_BYTES = 64 << 10
"""Received bytes between two acknowledgements to PID 1, which keeps at most eight times as much and then waits."""
_SYNC_S = 1.0
"""Seconds before PID 1 is asked again where its frames begin."""
_FIND_AGAIN_S = 0.2


class ResumableStream:
    """``on_message`` receives PID 1's messages in order; ``on_break`` is called when the stream has broken, unless it
    is being replaced."""

    def __init__(
        self,
        engine: DockerEngine,
        container: str,
        key: bytes,
        on_message: Callable[[InitMessage], None],
        on_break: Callable[[Exception | None], None],
    ) -> None:
        self._engine, self._container, self._key = engine, container, key
        self._on_message, self._on_break = on_message, on_break
        self._attachment: AttachStream | None = None
        self._number = 0
        """Number of the current attachment; messages of earlier ones are ignored."""
        self._flows = False
        """Frames are sent at once; otherwise they wait until PID 1 has reported what it received."""
        self._following = self._broken = False
        self._received = self._told_heard = 0
        self._taken = 0
        self._outbox = ResendBuffer()
        self.hello_received, self._news = asyncio.Event(), asyncio.Event()

    async def open(self) -> None:
        """Attach before the container starts. Raises DockerEngineError."""
        await self._attach(b"")
        self._flows = True

    def send(self, frame: bytes) -> None:
        """Send a frame to PID 1 exactly once, even across broken streams."""
        self._outbox.add(frame)
        if self._flows:
            self._write(frame)

    def forget_sent(self) -> None:
        """Drop the frames that PID 1 has not received."""
        self._outbox.clear()

    def close(self) -> None:
        """Close the current stream."""
        if self._attachment is not None:
            self._attachment.close()

    async def reconnect(self, last_request: int) -> int:
        """Open a new stream to the same PID 1 as soon as the daemon is reachable again.

        Returns the last request that PID 1 has received; a new client's requests are numbered from ``last_request`` on.
        Has no deadline of its own. Raises DockerEngineError when the daemon reports that the container no longer
        exists.
        """
        self.close()
        self._following = self._broken = True
        self._flows = False
        try:
            while self._broken:
                self.hello_received.clear()
                asked_from, number = (self._received, 0) if self._received else (wire.NEW_CLIENT, last_request)
                nonce = secrets.token_bytes(wire.NONCE_BYTES)
                await self._find(init_messages.sync_marker(nonce))
                while not (self.hello_received.is_set() or self._broken):
                    self._news.clear()
                    self._write(self._key + init_requests.sync_frame(number, nonce, asked_from))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_SYNC_S):
                            await self._news.wait()
        finally:
            self._following = False
        return self._taken

    async def _find(self, marker: bytes) -> None:
        while True:
            try:
                await self._attach(marker)
                await self._engine.require_running(self._container)
            except DockerEngineError as error:
                self.close()
                if 400 <= error.status < 500:
                    raise
                await asyncio.sleep(_FIND_AGAIN_S)
            else:
                return

    async def _attach(self, marker: bytes) -> None:
        self._number, self._broken = self._number + 1, False
        lost = partial(self._on_lost, self._number)
        self._attachment = await attach_to_container(self._engine.url, self._container, self._take, lost, marker=marker)

    def _write(self, frame: bytes) -> None:
        if self._attachment is not None:
            self._attachment.write(frame)

    def _take(self, message: InitMessage, position: int) -> None:
        if isinstance(message, StreamResumed):
            self._resume(message)
            return
        if position <= self._received:  # PID 1 sent it before it got the acknowledgement
            return
        self._received = position
        if position - self._told_heard >= _ACKNOWLEDGE_BYTES:
            self._told_heard = position
            self._write(init_requests.stream_ack_frame(position))
        match message:
            case InitHello(protocol):
                self._greet(protocol)
            case InitAck() | FileData() | CommandStatus() | ProcessDied() | ChildExit():
                self._outbox.acknowledge(message.request)
            case _:
                pass
        self._on_message(message)

    def _greet(self, protocol: int) -> None:
        if protocol != wire.PROTOCOL:
            raise StreamProtocolError(f"PID 1 speaks protocol {protocol}, this is {wire.PROTOCOL}")
        self.hello_received.set()
        self._news.set()

    def _resume(self, message: StreamResumed) -> None:
        """Send the frames that have waited: PID 1 is listening."""
        if self._received and message.position > self._received:
            raise StreamProtocolError(f"{message.position - self._received} bytes from PID 1 are missing")
        self._received = self._told_heard = max(self._received, message.position)
        self._greet(message.protocol)
        self._taken = message.last_request
        self._outbox.acknowledge(message.last_request)
        for frame in self._outbox:
            self._write(frame)
        self._flows = True

    def _on_lost(self, number: int, error: Exception | None) -> None:
        if number != self._number:
            return
        self._flows, self._broken = False, True
        self._news.set()
        if not self._following:
            self._on_break(error)
