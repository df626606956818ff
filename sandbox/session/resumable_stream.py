"""PID 1's stream, and those that follow when it breaks while the container goes on, because its daemon was restarted.

On the next stream nothing of either side is missing, and nothing comes twice: this side counts the bytes that it has
heard, PID 1 keeps what follows them, and frames that PID 1 did not get are sent again.  A new client of a container
that runs is told what each shell does, and nothing of before.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial

from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.session import wire
from sandbox.session.attach import AttachStream, attach_to_container
from sandbox.session.resend_buffer import ResendBuffer

_HEARD_BYTES = 64 << 10
"""PID 1 is told as often what it need not keep any more; it keeps, and waits for, eight times as much."""
_SYNC_S = 1.0
"""Before the question where the frames begin is asked again."""
_FIND_AGAIN_S = 0.2


class ResumableStream:
    """``on_message`` gets what PID 1 says, in its order; ``on_break`` is called whenever the stream has broken, unless
    it is just being followed by another."""

    def __init__(
        self,
        engine: DockerEngine,
        container: str,
        key: bytes,
        on_message: Callable[[wire.InitMessage], None],
        on_break: Callable[[Exception | None], None],
    ) -> None:
        self._engine, self._container, self._key = engine, container, key
        self._on_message, self._on_break = on_message, on_break
        self._attachment: AttachStream | None = None
        self._number = 0
        """The attachment's: what an earlier one still says is not heard."""
        self._flows = False
        """Frames go out as they come; else they wait for PID 1 to say what it has."""
        self._following = self._broken = False
        self._heard = self._told_heard = 0
        self._taken = 0
        self._outbox = ResendBuffer()
        self.greeted, self._news = asyncio.Event(), asyncio.Event()

    async def open(self) -> None:
        """Before the container starts.  Raises EngineError."""
        await self._attach(b"")
        self._flows = True

    def send(self, frame: bytes) -> None:
        """To PID 1, once, whatever happens to the stream."""
        self._outbox.add(frame)
        if self._flows:
            self._write(frame)

    def forget_sent(self) -> None:
        """What PID 1 has not got it shall not get."""
        self._outbox.clear()

    def close(self) -> None:
        if self._attachment is not None:
            self._attachment.close()

    async def reconnect(self, last_request: int) -> int:
        """A new stream to the same PID 1, as soon as the daemon is back; nobody waits for one that is there.  Returns
        the last request that PID 1 has taken; those of a new client are beyond ``last_request``.

        Raises EngineError when the daemon says that the container is gone.  Has no deadline of its own.
        """
        self.close()
        self._following = self._broken = True
        self._flows = False
        try:
            while self._broken:
                self.greeted.clear()
                asked_from, number = (self._heard, 0) if self._heard else (wire.NEW_CLIENT, last_request)
                nonce = secrets.token_bytes(wire.NONCE_BYTES)
                await self._find(wire.sync_marker(nonce))
                while not (self.greeted.is_set() or self._broken):
                    self._news.clear()
                    self._write(self._key + wire.sync_frame(number, nonce, asked_from))
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

    def _take(self, message: wire.InitMessage, position: int) -> None:
        if isinstance(message, wire.StreamResumed):
            self._resume(message)
            return
        if position <= self._heard:  # PID 1 could not know that it had come
            return
        self._heard = position
        if position - self._told_heard >= _HEARD_BYTES:
            self._told_heard = position
            self._write(wire.heard_frame(position))
        match message:
            case wire.InitHello(protocol):
                self._greet(protocol)
            case wire.InitAck() | wire.FileData() | wire.CommandStatus() | wire.ProcessDied() | wire.ChildExit():
                self._outbox.acknowledge(message.request)
            case _:
                pass
        self._on_message(message)

    def _greet(self, protocol: int) -> None:
        if protocol != wire.PROTOCOL:
            raise wire.StreamProtocolError(f"PID 1 speaks protocol {protocol}, this is {wire.PROTOCOL}")
        self.greeted.set()
        self._news.set()

    def _resume(self, message: wire.StreamResumed) -> None:
        """The way is open for what has waited."""
        if self._heard and message.position > self._heard:
            raise wire.StreamProtocolError(f"{message.position - self._heard} bytes of PID 1's are missing")
        self._heard = self._told_heard = max(self._heard, message.position)
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
