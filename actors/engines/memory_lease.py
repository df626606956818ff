"""One turn of the learner on a device that it shares with a server: begun by a lease, ended by new weights or by time.

Whoever is given the device says again and again that it is still wanted, by a new lease; a turn that nobody ends and
nobody renews is over at its deadline.  No I/O: :class:`actors.engines.engine.Engine` gives memory away and takes it
back.
"""

from __future__ import annotations

import asyncio

from actors.engines.messages import WeightLoadError, WeightLoadReport
from protocol.weights import WeightManifest


class MemoryLease:
    task: asyncio.Task[WeightLoadReport | WeightLoadError | None]
    """Holds the server for all of the turn, and ends with it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.released = asyncio.Event()
        """Set once the memory is the learner's."""
        self.is_ending = False
        """The server is taking it back."""
        self._back: asyncio.Future[WeightManifest] = loop.create_future()
        self._deadline = loop.time()

    def renew(self, seconds: float) -> None:
        """It may last so long from now on."""
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def end_with_weights(self, manifest: WeightManifest) -> WeightLoadReport | WeightLoadError | None:
        """The learner's turn is over: the server is to go on with these weights.  What came of it."""
        if not self._back.done():
            self._back.set_result(manifest)
        return await asyncio.shield(self.task)

    async def wait_until_ended(self) -> WeightManifest | None:
        """What :meth:`give_back` was given; None at the end of the last lease.  The turn is over then."""
        manifest = await self._wait_for_weights()
        self.is_ending = True
        return manifest

    async def _wait_for_weights(self) -> WeightManifest | None:
        while True:
            deadline = self._deadline
            try:
                async with asyncio.timeout_at(deadline):
                    return await asyncio.shield(self._back)
            except TimeoutError:
                if deadline == self._deadline:  # it was not renewed meanwhile
                    return None
