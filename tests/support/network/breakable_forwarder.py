"""A network that fails between a client and a server: a TCP address whose connections a test breaks."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 16


class BreakableForwarder:
    """``async with BreakableForwarder(url) as forwarder`` forwards what is sent to ``forwarder.url`` to ``url``."""

    def __init__(self, url: str, *, lose: int = 0, on_loss: Callable[[], object] = lambda: None) -> None:
        """On the first ``lose`` connections it hangs up when the reply comes, and calls ``on_loss``."""
        self._target, self._left, self._on_loss = urlsplit(url), lose, on_loss
        self._open: set[StreamWriter] = set()
        self.replied = asyncio.Event()
        """Set once part of a reply has been passed on."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Refuse connections from now on, and end those that are open."""
        self._server.close()
        for writer in self._open:
            writer.close()

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._target.hostname, self._target.port)
        loses, self._left = self._left > 0, self._left - 1
        self._open |= {writer, forth}
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, forth))
            first = await back.read(_PIECE_BYTES)
            if loses:
                self._on_loss()
                writer.close()
            else:
                writer.write(first)
                self.replied.set()
                await _copy(back, writer)
        self._open -= {writer, forth}


async def _copy(source: StreamReader, sink: StreamWriter) -> None:
    """Copy until either end is closed."""
    with suppress(ConnectionError):
        while piece := await source.read(_PIECE_BYTES):
            sink.write(piece)
            await sink.drain()
    sink.close()
