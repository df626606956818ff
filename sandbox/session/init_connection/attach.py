"""PID 1's attach stream, hijacked from Docker's HTTP API: one socket and one protocol object, without a task.

It is opened between create and start, so that the first frame is not missed. Messages are passed on synchronously as
their bytes arrive, each with the position after it (:attr:`FrameParser.position`); ``on_lost`` is called exactly once,
when the stream has ended for any reason.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from sandbox.docker.address import DockerAddress
from sandbox.docker.retry import DockerEngineError, no_answer_error
from sandbox.docker.stream import DockerStreamDemultiplexer, StreamProtocolError
from sandbox.session.init_connection.init_messages import FrameParser, InitMessage

_OPEN_S = 30.0
_MAX_HEAD_BYTES = 64 << 10


class AttachStream(asyncio.Protocol):
    """The protocol object of one stream; :func:`attach_to_container` creates it."""

    def __init__(
        self,
        host: str,
        container: str,
        on_message: Callable[[InitMessage, int], None],
        on_lost: Callable[[Exception | None], None],
        marker: bytes,
    ) -> None:
        self._host, self._container = host, container
        self._on_message, self._on_lost = on_message, on_lost
        self._head: bytearray | None = bytearray()
        self._demux, self._frames = DockerStreamDemultiplexer(), FrameParser(marker)
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._status = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, frames: bytes) -> None:
        """Queue frames for PID 1. Does nothing after the end of the stream, which ``on_lost`` reports."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames)

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        query = "stream=1&stdin=1&stdout=1&stderr=1"
        self._transport.write(
            f"POST /containers/{self._container}/attach?{query} HTTP/1.1\r\nHost: {self._host}\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        try:
            if self._head is not None:
                data = self._read_head(data)
            for chunk in self._demux.feed(data):
                if not chunk.stderr:
                    for message in self._frames.feed(chunk.data):
                        self._on_message(message, self._frames.position)
        except StreamProtocolError as error:
            self._error = error
            self.close()

    def _read_head(self, data: bytes) -> bytes:
        head = self._head
        if head is None:
            return data
        head += data
        end = head.find(b"\r\n\r\n")
        if end < 0:
            if len(head) > _MAX_HEAD_BYTES:
                raise StreamProtocolError("endless HTTP head")
            return b""
        self._head = None
        status = bytes(head[: head.find(b"\r\n")]).decode(errors="replace")
        code = (*status.split(" "), "")[1]
        if code not in ("101", "200"):
            self._status = int(code) if code.isdigit() else 0
            raise StreamProtocolError(f"attach refused: {status} {_reason(bytes(head[end + 4 :]))}".rstrip())
        if not self.opened.done():
            self.opened.set_result(None)
        return bytes(head[end + 4 :])

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error or exc
        if not self.opened.done():
            what = f"attach to {self._container[:12]}"
            refused = DockerEngineError(f"could not {what}: {error}", self._status)
            lost = no_answer_error(what, error or ConnectionAbortedError("the connection was closed"))
            self.opened.set_exception(refused if self._error else lost)
        self._on_lost(error)


def _reason(body: bytes) -> str:
    """Return the engine's reason for refusing, as far as it arrived with the head."""
    found = re.search(rb'"message"\s*:\s*"([^"]*)', body)
    return found[1].decode(errors="replace") if found else ""


async def attach_to_container(
    url: str,
    container: str,
    on_message: Callable[[InitMessage, int], None],
    on_lost: Callable[[Exception | None], None],
    *,
    marker: bytes = b"",
) -> AttachStream:
    """Attach to a container that has been created.

    A container that was already running may be in the middle of a frame for another client; then ``marker`` is where
    this client's frames begin (:func:`.init_messages.sync_marker`). Raises DockerEngineError.
    """
    try:
        async with asyncio.timeout(_OPEN_S):
            address = DockerAddress.parse(url)
            attachment = await address.connect(
                lambda: AttachStream(address.authority, container, on_message, on_lost, marker)
            )
            try:
                await attachment.opened
            except BaseException:
                attachment.close()
                raise
    except (TimeoutError, OSError) as error:
        raise no_answer_error(f"attach to {container[:12]}", error) from error
    return attachment
