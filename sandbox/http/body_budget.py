"""Bounds the bytes of request bodies that a server holds until they are answered, of one client and of all.

A body counts with its declared length before any of it is read.  One that does not fit waits; small ones never do, so
that heartbeats and commands pass beside uploads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

MAX_BODY_BYTES = 96 << 20
"""Maximum bytes of a body: a 64 MiB file in base64 and its request."""
SMALL_BYTES = 64 << 10
"""Bodies up to this size do not count: the number of connections bounds them."""


@dataclass(frozen=True, slots=True)
class BodyBudgetLimits:
    """Most bytes of bodies that a server holds at a time; parsed, they take about twice as much."""

    client: int = 512 << 20
    all_clients: int = 1 << 30


class BodyBudget:
    """The bytes of bodies that a server holds."""

    def __init__(self, limits: BodyBudgetLimits = BodyBudgetLimits()) -> None:
        self._limits = limits
        self._held = Counter[str]()
        self._freed = asyncio.Event()

    @property
    def held(self) -> int:
        """Bytes of all clients."""
        return self._held.total()

    @asynccontextmanager
    async def hold(self, client: str, size: int) -> AsyncGenerator[Callable[[int], None]]:
        """Wait until ``size`` bytes of ``client`` fit, and count them during the block, or fewer once the function that
        it gives was told how many there are."""
        counted = size if size > SMALL_BYTES else 0
        while counted and (
            self._held[client] + counted > self._limits.client or self.held + counted > self._limits.all_clients
        ):
            self._freed.clear()
            await self._freed.wait()
        self._held[client] += counted

        def shrink_to(actual: int) -> None:
            nonlocal counted
            before, counted = counted, min(counted, actual)
            self._release(client, before - counted)

        try:
            yield shrink_to
        finally:
            self._release(client, counted)

    def _release(self, client: str, size: int) -> None:
        self._held[client] -= size
        if not self._held[client]:
            del self._held[client]
        self._freed.set()
