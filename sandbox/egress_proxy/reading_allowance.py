"""How long a client of the proxy may take to read a response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

MOST_S = 120.0
"""Seconds that a client may pause."""
LEAST_BYTES_PER_S = 32 << 10
"""Rate at which what a client reads gives it more time."""


class ReadingAllowance:
    """The seconds for which a client may still keep the proxy waiting: each wait takes some, each byte gives some.

    A deadline for each wait alone would let a client that reads a little at a time hold a response for ever, and with
    it all readers of a file that is passed through.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._left_s = now, MOST_S

    async def wait(self, read: Awaitable[None], sent_bytes: int) -> None:
        """Wait until the client has ``read`` enough of what was sent.  Raises TimeoutError."""
        self._left_s = min(self._left_s + sent_bytes / LEAST_BYTES_PER_S, MOST_S)
        began = self._now()
        async with asyncio.timeout(self._left_s):
            await read
        self._left_s -= self._now() - began
