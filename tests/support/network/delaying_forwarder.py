"""A slow network for tests where the kernel has none (``tc netem``): it forwards TCP and delays each direction.

``python -m tests.support.network.delaying_forwarder HOST PORT TARGET_PORT DELAY_S UNEVEN_S`` listens at HOST:PORT and
connects to HOST:TARGET_PORT.  What is read is written after DELAY_S, up to UNEVEN_S less or more, in its order. It
says when it listens, and whenever a connection has come.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

_AT_ONCE = 64
"""Pieces on their way in one direction."""
_PIECE_BYTES = 1 << 16


class DelayingForwarder:
    def __init__(self, host: str, target_port: int, delay_s: float, uneven_s: float) -> None:
        self._host, self._target_port = host, target_port
        self._delay_s, self._uneven_s = delay_s, uneven_s
        self._dice = random.Random(0)

    async def serve(self, port: int) -> None:
        async with await asyncio.start_server(self._connect, self._host, port) as server:
            say(f"listening {port}")
            await server.serve_forever()

    async def _connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        say("connected")
        with suppress(OSError):
            back, forth = await asyncio.open_connection(self._host, self._target_port)
            async with asyncio.TaskGroup() as group:
                for source, sink in ((reader, forth), (back, writer)):
                    queue = asyncio.Queue[tuple[float, bytes]](_AT_ONCE)
                    group.create_task(self._take(source, queue))
                    group.create_task(self._give(queue, sink))

    async def _take(self, source: StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        """An empty piece is the end."""
        piece = b"the first"
        while piece:
            piece = await _read(source)
            delay_s = self._delay_s + self._dice.uniform(-self._uneven_s, self._uneven_s)
            await queue.put((asyncio.get_running_loop().time() + delay_s, piece))

    async def _give(self, queue: asyncio.Queue[tuple[float, bytes]], sink: StreamWriter) -> None:
        piece = b"the first"
        while piece:
            due, piece = await queue.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            with suppress(ConnectionError):  # nobody reads it any more
                sink.write(piece)
                await sink.drain()
        sink.close()


async def _read(source: StreamReader) -> bytes:
    """Empty at the end, however that came."""
    with suppress(ConnectionError):
        return await source.read(_PIECE_BYTES)
    return b""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    listen, (own, target), seconds = sys.argv[1], map(int, sys.argv[2:4]), map(float, sys.argv[4:6])
    asyncio.run(DelayingForwarder(listen, target, *seconds).serve(own))
