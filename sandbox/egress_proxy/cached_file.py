"""One cached file while it is read: complete, being fetched, or passed through.

Each reader reads what is on disk from there, at its own pace. The rest of a file that may not be kept is passed
through: a piece is fetched when all readers have received the previous one, and no new reader can join.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

Headers = tuple[tuple[str, str], ...]

_CHUNK_BYTES = 256 << 10


class FetchFailedError(Exception):
    """The rest of a file that was being fetched will not arrive."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of a response."""

    status: int
    headers: Headers

    @property
    def length(self) -> int | None:
        """Number of bytes that follow, if the head states it."""
        length = next((value for name, value in self.headers if name.lower() == "content-length"), "")
        return int(length) if length.isdecimal() else None


class _Notifier:
    """Wakes all waiters so that they check their condition."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._event.wait()


@dataclass(slots=True, eq=False, weakref_slot=True)
class CachedFile:
    """A file that is being fetched or is complete."""

    head: ResponseHead
    path: Path
    fresh_until: float
    """Unix time in seconds."""
    arrived: int = 0
    """Number of bytes received, on disk or passed through."""
    on_disk: int = 0
    granted: int = 0
    """Maximum number of bytes that it may have on disk."""
    complete: bool = False
    failed: bool = False
    _piece: bytes = b""
    _positions: dict[object, int] = field(default_factory=dict[object, int])
    """Number of bytes that each reader has read."""
    _arrival: _Notifier = field(default_factory=_Notifier)
    _progress: _Notifier = field(default_factory=_Notifier)

    @property
    def has_readers(self) -> bool:
        """True if it has readers."""
        return bool(self._positions)

    @asynccontextmanager
    async def open_reader(self) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """Yield all of the file's bytes as they arrive; iterating raises FetchFailedError.

        The file counts this reader from the first moment: nothing is awaited before the block begins.
        """
        reader = object()
        self._positions[reader] = 0
        try:
            async with aclosing(self._bytes(reader)) as body:
                yield body
        finally:
            del self._positions[reader]
            self._progress.notify()

    async def _bytes(self, reader: object) -> AsyncGenerator[bytes]:
        at = 0
        with ExitStack() as stack:
            source: BinaryIO | None = None
            while True:
                await self._wait_behind(reader, at)
                if at == self.arrived:
                    return
                if at < self.on_disk:
                    source = source or stack.enter_context(self._open())
                    data = await asyncio.to_thread(source.read, min(_CHUNK_BYTES, self.on_disk - at))
                else:
                    data = self._piece
                at += len(data)
                yield data

    async def _wait_behind(self, reader: object, at: int) -> None:
        """Wait until there is more than this reader has read, or the file is complete. Raises FetchFailedError."""
        self._positions[reader] = at
        self._progress.notify()
        await self._arrival.wait_until(lambda: at < self.arrived or self.complete or self.failed)
        if self.failed:
            raise FetchFailedError

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:  # dropped to free space since it was found
            raise FetchFailedError from error

    def record_written(self, count: int) -> None:
        """Record that ``count`` more bytes are on disk."""
        self.arrived += count
        self.on_disk += count
        self._arrival.notify()

    async def stream_uncached(self, piece: bytes) -> None:
        """Give the readers a piece that is not kept, and remove what is on disk.

        Raises FetchFailedError when there is no reader.
        """
        await self._progress.wait_until(lambda: all(at == self.arrived for at in self._positions.values()))
        if not self._positions:
            raise FetchFailedError
        self.discard()
        self._piece = piece
        self.arrived += len(piece)
        self._arrival.notify()

    def discard(self) -> None:
        """Remove what is on disk; readers that have it open keep no disk space."""
        with suppress(FileNotFoundError):
            os.truncate(self.path, 0)
            self.path.unlink()
        self.on_disk = self.granted = 0

    def finish(self, *, failed: bool) -> None:
        """Record that the fetch has ended."""
        self.failed, self.complete = failed, not failed
        self._arrival.notify()
